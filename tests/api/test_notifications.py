"""Notifications and rules, as users and learners see them in the API."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from sqlalchemy import select
from tests.api.conftest import HELLO, Agent, Api, Attempted, Person, code_of

from weft_core.settings import NotifySettings, OutgoingSettings, Settings, SmtpSettings
from weft_core.store.models import Delivery, Job, MetricCursor, RuleFiring

HOOK = "https://127.0.0.1:9/hook/secret-path"


@pytest.fixture(scope="module")
def api_settings(api_settings: Settings) -> Settings:
    return api_settings.model_copy(update={"outgoing": OutgoingSettings(allow=["127.0.0.1"])})


def refused(person: Person, rest: str) -> dict[str, Any]:
    answer = person.http.post("/api/v1/jobs", json={"manifest": HELLO + rest})
    assert answer.status_code == 400, answer.text
    assert code_of(answer) == "invalid_manifest"
    (problem,) = answer.json()["problems"]
    assert person.http.post("/api/v1/manifests:validate", content=HELLO + rest).status_code == 400
    return dict(problem)


# --- what is refused at submit ---


def test_a_webhook_at_a_private_address_is_refused(ann: Person) -> None:
    problem = refused(ann, "notify:\n  - url: https://10.1.2.3/hook\n")
    assert (problem["path"], problem["line"]) == ("notify[0].url", 5)
    assert problem["message"].startswith("can't be called: its host can't be found, or is one that this installation ")


def test_a_signing_secret_must_be_kept(ann: Person) -> None:
    problem = refused(ann, f"notify: {{url: '{HOOK}', secret: key}}\n")
    assert (problem["path"], problem["message"]) == ("notify[0].secret", "no secret named 'key' in this project")
    assert ann.http.put("/api/v1/secrets/key", json={"value": "geheim"}).status_code < 300
    assert "geheim" not in json.dumps(ann.submit(HELLO + f"notify: {{url: '{HOOK}', secret: key}}\n"))


def test_a_url_in_a_secret_is_checked_and_not_shown(ann: Person) -> None:
    ann.http.put("/api/v1/secrets/slack", json={"value": "https://10.1.2.3/services/T0"})
    problem = refused(ann, "notify: {format: slack, secret: slack}\n")
    assert problem["path"] == "notify[0].secret"
    assert "10.1.2.3" not in json.dumps(problem)


def test_an_email_needs_a_mail_server(api: Api, ann: Person) -> None:
    problem = refused(ann, "notify: {email: ada@example.com}\n")
    assert problem["path"] == "notify[0].email"
    assert problem["message"] == "this installation sends no e-mail (the administrator's setting is notify.smtp)"
    api.settings.notify = NotifySettings(smtp=SmtpSettings(host="mail.example.com", sender="weft@example.com"))
    try:
        ann.submit(HELLO + "notify: {email: ada@example.com}\n")
    finally:
        api.settings.notify = NotifySettings()


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\\1", "a{9999}"])
def test_a_pattern_is_one_of_re2(ann: Person, pattern: str) -> None:
    problem = refused(ann, f'rules: [{{when: "log /{pattern}/", then: halt}}]\n')
    assert (problem["path"], problem["accepted"]) == ("rules[0].when", "RE2's syntax, without look-around")
    assert problem["message"].startswith("not a regular expression: ")


# --- rules about what learners send ---


@pytest.fixture
def guarded(api: Api, ann: Person) -> tuple[Attempted, Agent]:
    """A running job with rules, and its learner."""
    rules = (
        'rules:\n- {when: "log /^CUDA error: (?i:out)/", then: halt}\n- {when: metric loss is nan, then: halt}\n'
        "- {when: metric val/acc < 0.1, then: halt}\n- {when: no step for 10m, then: halt}\n"
    )
    attempt = api.attempt(ann.submit(HELLO + rules)["id"])
    attempt.agents[0].start()
    return attempt, attempt.agents[0]


def firings(api: Api, job_id: str) -> dict[int, str]:
    with api.context.database.transaction() as session:
        rows = session.scalars(select(RuleFiring).where(RuleFiring.job_id == job_id)).all()
    assert all(row.acted_at is None for row in rows), "the workers act"
    return {row.rule: row.found for row in rows}


def metrics(
    agent: Agent, sequence: int, *values: dict[str, float], group: str = "", step: int | None = None, kind: str = "user"
) -> None:
    etimes = {} if step is None else {"iteration": step}
    records = [{"t": 1, "kind": kind, "group": group, "etimes": etimes, "values": value} for value in values]
    body = {"rank": agent.rank, "instance": agent.instance, "sequence": sequence, "records": records}
    answer = agent.http.post(
        "/api/v1/learner/metrics", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 204, answer.text


def test_the_first_line_that_matches_fires_a_rule(api: Api, guarded: tuple[Attempted, Agent]) -> None:
    attempt, agent = guarded
    agent.log(0, "begin", "no CUDA error: out of memory")
    assert firings(api, attempt.job_id) == {}
    agent.log(1, "step 1", "CUDA error: OUT of memory", "CUDA error: out of luck")
    agent.log(2, "CUDA error: out again")
    assert firings(api, attempt.job_id) == {0: "line 3 of learner 1: CUDA error: OUT of memory"}


def test_a_line_that_comes_after_the_end_fires_it_too(api: Api, guarded: tuple[Attempted, Agent]) -> None:
    attempt, agent = guarded
    api.end_attempt(attempt)
    agent.post("logs", sequence=0, late=True, lines=[{"t": 1, "s": "CUDA error: out of memory"}])
    assert list(firings(api, attempt.job_id)) == [0]


def test_a_value_fires_a_rule(api: Api, guarded: tuple[Attempted, Agent]) -> None:
    attempt, agent = guarded
    metrics(agent, 0, {"loss": 1.5, "acc": 0.01}, {"loss": math.inf}, step=1)
    metrics(agent, 1, {"loss": math.nan}, group="other")
    metrics(agent, 2, {"acc": 0.1}, group="val")
    assert firings(api, attempt.job_id) == {}
    metrics(agent, 3, {"loss": 1.4}, {"loss": math.nan, "acc": 1}, step=7)
    metrics(agent, 4, {"acc": 0.09}, group="val")
    assert firings(api, attempt.job_id) == {1: "loss was nan at step 7 (learner 1)", 2: "val/acc was 0.09 (learner 1)"}


def test_any_value_of_the_programs_counts_as_a_step(api: Api, guarded: tuple[Attempted, Agent]) -> None:
    attempt, agent = guarded

    def stepped() -> bool:
        with api.context.database.transaction() as session:
            return session.get_one(MetricCursor, attempt.job_id).stepped_at is not None

    metrics(agent, 0, {"cpu_percent": 3}, kind="system")
    assert not stepped()
    metrics(agent, 1, {"loss": 1.5})
    assert stepped()


# --- the delivery log ---

NOTIFY = f"notify: [{{url: '{HOOK}', on: [QUEUED, FAILED]}}]\n"


def listed(person: Person, job_id: str) -> list[dict[str, Any]]:
    answer = person.http.get(f"/api/v1/jobs/{job_id}/deliveries")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["deliveries"]
    return found


def test_the_log_shows_each_event_and_no_path_of_a_webhook(api: Api, ann: Person) -> None:
    job_id = ann.submit(HELLO + NOTIFY)["id"]
    api.set_state(job_id, "FAILED", "it broke")
    newest, oldest = listed(ann, job_id)
    assert (newest["event"], newest["message"], oldest["event"]) == ("FAILED", "it broke", "QUEUED")
    assert (newest["target"], newest["format"]) == ("https://127.0.0.1:9/…", "json")
    assert (newest["state"], newest["tries"], newest["status"], newest["delivered_at"]) == ("waiting", 0, None, None)
    assert newest["event_id"].startswith(f"{job_id}-")
    assert newest["event_id"] != oldest["event_id"]
    assert "secret-path" not in json.dumps([newest, oldest])
    assert ann.http.get(f"/api/v1/jobs/{job_id}/deliveries", params={"limit": 1}).json()["deliveries"] == [newest]


def test_replay(api: Api, ann: Person) -> None:
    job_id = ann.submit(HELLO + NOTIFY)["id"]
    (delivery,) = listed(ann, job_id)
    with api.context.database.transaction() as session:
        row = session.get_one(Delivery, delivery["id"])
        row.delivered_at, row.next_try_at, row.tries, row.status = row.queued_at, None, 3, "HTTP 200"
    assert listed(ann, job_id)[0]["state"] == "delivered"
    path = f"/api/v1/jobs/{job_id}/deliveries/{delivery['id']}/replay"
    answer = ann.http.post(path, headers={"Idempotency-Key": "again"})
    assert answer.status_code == 202, answer.text
    replayed = answer.json()
    assert (replayed["state"], replayed["tries"], replayed["event_id"]) == ("waiting", 0, delivery["event_id"])
    with api.context.database.transaction() as session:
        session.get_one(Delivery, delivery["id"]).tries = 1
    assert ann.http.post(path, headers={"Idempotency-Key": "again"}).json()["tries"] == 1, "the same request"
    assert ann.http.post(path).json()["tries"] == 0


def test_who_may_see_and_replay(api: Api, ann: Person, bob: Person) -> None:
    job_id = ann.submit(HELLO + NOTIFY)["id"]
    (delivery,) = listed(ann, job_id)
    path = f"/api/v1/jobs/{job_id}/deliveries"
    viewer = api.person("viewer", ann.project_id)
    assert viewer.http.get(path).status_code == 200
    assert viewer.http.post(f"{path}/{delivery['id']}/replay").status_code == 403
    assert bob.http.get(path).status_code == 404
    assert bob.http.post(f"{path}/{delivery['id']}/replay").status_code == 404
    other = ann.submit()["id"]
    assert listed(ann, other) == []
    answer = ann.http.post(f"/api/v1/jobs/{other}/deliveries/{delivery['id']}/replay")
    assert (answer.status_code, answer.json()["detail"]) == (404, f"no delivery {delivery['id']!r} in this project")


def test_a_rerun_has_the_same_targets_and_rules(api: Api, ann: Person) -> None:
    rules = 'rules: [{when: "log /a: b/", then: [notify, halt]}]\n'
    job_id = ann.submit(HELLO + NOTIFY + rules)["id"]
    again = ann.http.post(f"/api/v1/jobs/{job_id}/rerun").json()["id"]
    with api.context.database.transaction() as session:
        first, second = (session.get_one(Job, name).manifest for name in (job_id, again))
    assert (first["notify"], first["rules"]) == (second["notify"], second["rules"])
