"""Budgets of tokens: how they are made and shared, and what they refuse before a job waits."""

from __future__ import annotations

from typing import Any

import httpx
from sqlalchemy import select, update
from tests.api.conftest import Api, Person

from weft_core.store.models import Budget, Charge, Job, Token

MANIFEST = """
name: train
gpus: 2
max_runtime: 1h
framework: {name: pytorch, command: echo hello}
"""
ENDLESS = MANIFEST.replace("max_runtime: 1h\n", "")


def made(person: Person, **body: Any) -> dict[str, Any]:
    answer = person.http.post("/api/v1/tokens", json={"name": "agent", **body})
    assert answer.status_code == 201, answer.text
    token: dict[str, Any] = answer.json()
    return token


def submit(http: httpx.Client, manifest: str = MANIFEST) -> httpx.Response:
    return http.post("/api/v1/jobs", json={"manifest": manifest})


def test_a_token_shows_its_budget_and_shares_it_with_the_tokens_that_it_makes(api: Api) -> None:
    ann = api.person()
    token = made(ann, gpu_hours=10)
    assert token["budget"] == {"gpu_hours": 10, "used": 0, "reserved": 0, "left": 10}
    agent = api.client(token["token"])
    assert agent.get("/api/v1/me").json()["budget"] == token["budget"]
    assert ann.http.get("/api/v1/me").json()["budget"] is None
    more = agent.post("/api/v1/tokens", json={"name": "more", "gpu_hours": 100})
    assert more.json()["problems"][0]["path"] == "body.gpu_hours", "or its budget would be of no use"
    agent.post("/api/v1/tokens", json={"name": "child"}).raise_for_status()
    session = api.client().post("/api/v1/session", json={"token": token["token"]})
    session.raise_for_status()
    account = {"name": "ci"}
    agent.post("/api/v1/service-accounts", json=account).raise_for_status()
    agent.post("/api/v1/service-accounts/ci/tokens", json={"name": "of ci"}).raise_for_status()
    with api.context.database.transaction() as database:
        theirs = database.scalars(select(Token).where(Token.project_id == ann.project_id)).all()
    children = [row for row in theirs if token["id"] in (row.id, row.opened_with)]
    budgets = {row.budget_id for row in children}
    assert len(budgets) == 1
    assert None not in budgets
    assert {row.name for row in children} >= {"agent", "child", "of ci"}
    assert len(children) == 4, "and the session"
    own = ann.http.post("/api/v1/service-accounts/ci/tokens", json={"name": "x", "gpu_hours": 1}).json()
    assert own["budget"]["gpu_hours"] == 1


def test_a_job_with_a_budget_needs_a_time_limit_and_is_refused_when_nothing_is_left(api: Api) -> None:
    ann = api.person()
    token = made(ann, gpu_hours=10, role="editor")
    agent = api.client(token["token"])
    for answer in (
        submit(agent, ENDLESS),
        agent.post("/api/v1/manifests:validate", content=ENDLESS, headers={"Content-Type": "text/yaml"}),
    ):
        assert answer.json()["code"] == "invalid_manifest"
        assert answer.json()["problems"][0]["path"] == "max_runtime"
        assert answer.json()["problems"][0]["accepted"] == "a time limit, such as 2h"
    submit(agent, ENDLESS.replace("gpus: 2", "gpus: 0")).raise_for_status()
    job_id = submit(agent).raise_for_status().json()["id"]
    with api.context.database.transaction() as session:
        budget = session.get_one(Budget, session.get_one(Job, job_id).budget_id)
        assert (budget.name, budget.gpu_seconds) == ("agent", 36_000)
        charge = Charge(attempt_id="att-1", job_id=job_id, project_id=ann.project_id, budget_id=budget.id)
        charge.gpu_seconds = 35_900
        session.add(charge)
    submit(agent).raise_for_status()  # what is only reserved may come back
    with api.context.database.transaction() as session:
        session.execute(update(Charge).where(Charge.budget_id == budget.id).values(settled_at=budget.created_at))
    refused = submit(agent)
    assert (refused.status_code, refused.json()["code"]) == (403, "budget_used_up")
    assert refused.json()["detail"] == "the budget of token 'agent' is used up: 9.972 of 10 GPU-hours are used"
    submit(ann.http, ENDLESS).raise_for_status()


def test_a_resumed_job_is_charged_to_whoever_resumes_it(api: Api) -> None:
    ann = api.person()
    agent = api.client(made(ann, gpu_hours=10)["token"])
    ours, endless = (submit(ann.http, text).json()["id"] for text in (MANIFEST, ENDLESS))
    for job_id in (ours, endless):
        api.set_state(job_id, "HALTED")
    assert agent.post(f"/api/v1/jobs/{endless}/resume").status_code == 409
    agent.post(f"/api/v1/jobs/{ours}/resume").raise_for_status()

    def budget_of(job_id: str) -> str | None:
        with api.context.database.transaction() as session:
            return session.get_one(Job, job_id).budget_id

    assert budget_of(ours) is not None
    assert budget_of(endless) is None
    api.set_state(ours, "HALTED")
    ann.http.post(f"/api/v1/jobs/{ours}/resume").raise_for_status()
    assert budget_of(ours) is None


def test_a_sweep_is_charged_to_the_budget_and_no_other_token_with_one_makes_jobs_of_it(api: Api) -> None:
    ann = api.person()
    agent = api.client(made(ann, gpu_hours=10)["token"])
    sweep = MANIFEST + "sweep: {metric: loss, search: random, trials: 2, parameters: {lr: {values: [1, 2]}}}\n"

    def submitted(http: httpx.Client) -> str:
        return str(http.post("/api/v1/sweeps", json={"manifest": sweep}).raise_for_status().json()["id"])

    mine = agent.post(f"/api/v1/sweeps/{submitted(agent)}/trials", json={}).raise_for_status()
    with api.context.database.transaction() as session:
        assert session.get_one(Job, mine.json()["job"]).budget_id is not None
    theirs = submitted(ann.http)
    times = {"manifest": MANIFEST, "set": {"on": "digits@production"}}
    schedule = ann.http.post("/api/v1/schedules", json=times).raise_for_status().json()["id"]
    for path in (f"sweeps/{theirs}/trials", f"sweeps/{theirs}/resume", f"schedules/{schedule}/starts"):
        refused = agent.post(f"/api/v1/{path}", json={})
        assert (refused.status_code, "not charged to it" in refused.text) == (409, True)
