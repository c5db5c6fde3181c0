"""The audit trail: its records, and the callers that may read it."""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import ProgrammingError
from starlette.routing import BaseRoute
from tests.api.conftest import HELLO, PASSWORD, Api, Person, code_of
from tests.api.statements import counted
from tests.e2e.stack import eventually

from weft_api.app import create_app
from weft_api.audit.recorder import RECORDER, Entry, Recorder
from weft_api.http.audited import AUDIT, audited
from weft_core.settings import Settings
from weft_core.store import audit
from weft_core.store.models import ActorKind, AuditRecord

_WRITES = {"POST", "PUT", "PATCH", "DELETE"}
SECRET_MANIFEST = """
name: quiet
framework: {name: pytorch, command: echo hello}
secrets: {KEY: wandb}
"""


@pytest.fixture
def new(api: Api) -> Callable[[], list[AuditRecord]]:
    """The records since the test began, oldest first."""
    with api.context.database.transaction() as session:
        before = session.scalar(select(func.max(AuditRecord.id))) or 0

    def found() -> list[AuditRecord]:
        with api.context.database.transaction() as session:
            query = select(AuditRecord).where(AuditRecord.id > before).order_by(AuditRecord.id)
            return list(session.scalars(query))

    return found


New = Callable[[], list[AuditRecord]]


def signed_in(api: Api, person: Person) -> httpx.Client:
    browser = api.client()
    browser.headers["X-Weft-Session"] = "1"
    opened = browser.post("/api/v1/session", json={"user": person.name, "password": PASSWORD})
    assert opened.status_code == 200, opened.text
    return browser


# --- what is recorded ----------------------------------------------------------------------------------------------


def test_a_write_is_recorded_with_who_from_where_on_what_and_how_it_ended(ann: Person, new: New) -> None:
    answer = ann.http.post("/api/v1/jobs", json={"manifest": HELLO})
    [record] = new()
    assert (record.actor, record.user, record.user_id) == ("token", ann.name, ann.user_id)
    assert (record.token_id or "").startswith("tok-")
    assert record.address == "127.0.0.1"
    assert (record.action, record.object_kind, record.object_id) == ("jobs.submit", "job", answer.json()["id"])
    assert (record.project, record.project_id) == (ann.project, ann.project_id)
    assert (record.status, record.count) == (201, 1)
    assert record.request_id == answer.headers["x-request-id"]


def test_verbs_on_a_job_name_the_job(ann: Person, new: New) -> None:
    job = ann.submit()["id"]
    ann.http.post(f"/api/v1/jobs/{job}/halt")
    ann.http.post(f"/api/v1/jobs/{job}/resume")
    again = ann.http.post(f"/api/v1/jobs/{job}/rerun").json()["id"]
    ann.http.delete(f"/api/v1/jobs/{job}")
    told = [(record.action, record.object_id, record.status) for record in new()][1:]
    assert told == [
        ("jobs.halt", job, 202),
        ("jobs.resume", job, 409),  # it is still being halted
        ("jobs.rerun", again, 201),
        ("jobs.delete", job, 202),
    ]


def test_refusals_are_recorded_too(api: Api, ann: Person, new: New) -> None:
    viewer = api.person("viewer", ann.project_id)
    assert viewer.http.post("/api/v1/jobs", json={"manifest": HELLO}).status_code == 403
    assert ann.http.post("/api/v1/jobs/job-000000000000/halt").status_code == 404
    assert ann.http.post("/api/v1/jobs", json={"manifest": "name: x"}).status_code == 400
    told = [(record.user, record.action, record.status) for record in new()]
    assert told == [
        (viewer.name, "jobs.submit", 403),
        (ann.name, "jobs.halt", 404),
        (ann.name, "jobs.submit", 400),
    ]


def test_reads_of_ones_own_are_not_recorded(ann: Person, new: New) -> None:
    for path in ("/api/v1/jobs", "/api/v1/secrets", f"/api/v1/projects/{ann.project}/members", "/api/v1/projects"):
        assert ann.http.get(path).status_code == 200
    assert ann.http.post("/api/v1/manifests:validate", content=HELLO).status_code == 200
    assert new() == []


def test_sign_ins_are_recorded_and_refused_ones_name_whose_password_was_wrong(api: Api, ann: Person, new: New) -> None:
    browser = signed_in(api, ann)
    browser.delete("/api/v1/session")
    stranger = api.client()
    assert stranger.post("/api/v1/login", json={"user": ann.name, "password": "wrong"}).status_code == 401
    assert stranger.post("/api/v1/login", json={"user": "my-password-by-mistake", "password": "?"}).status_code == 401
    opened, ended, refused, unknown = new()
    assert (opened.actor, opened.user, opened.action, opened.project) == (
        "password", ann.name, "sessions.open", ann.project,
    )  # fmt: skip
    assert (ended.actor, ended.user, ended.action) == ("session", ann.name, "sessions.end")
    assert opened.object_id == ended.object_id == ended.token_id
    assert (refused.actor, refused.user, refused.object_kind, refused.object_id, refused.status) == (
        "anonymous", None, "user", ann.name, 401,
    )  # fmt: skip
    assert (unknown.actor, unknown.object_id, unknown.status) == ("anonymous", None, 401)


def test_tokens_are_recorded_when_they_are_made_and_revoked(api: Api, ann: Person, new: New) -> None:
    made = ann.http.post("/api/v1/tokens", json={"name": "ci"}).json()
    logged_in = api.client().post("/api/v1/login", json={"user": ann.name, "password": PASSWORD}).json()
    ann.http.delete(f"/api/v1/tokens/{made['id']}")
    told = [(record.user, record.action, record.object_id) for record in new()]
    assert told == [
        (ann.name, "tokens.create", made["id"]),
        (ann.name, "tokens.login", logged_in["id"]),
        (ann.name, "tokens.revoke", made["id"]),
    ]


def test_no_record_holds_a_secret(api: Api, ann: Person) -> None:
    value = "a-value-that-must-not-show"
    ann.http.put("/api/v1/secrets/wandb", json={"value": value})
    token = ann.http.post("/api/v1/tokens", json={"name": "ci"}).json()["token"]
    api.client().post("/api/v1/login", json={"user": ann.name, "password": value})
    with api.context.database.transaction() as session:
        everything = "\n".join(session.scalars(text("select audit::text from audit")).all())
    assert "wandb" in everything
    for secret in (value, token, PASSWORD, ann.token):
        assert secret not in everything


def test_ffdls_routes_are_recorded_with_the_password_as_proof(api: Api, ann: Person, new: New) -> None:
    job = ann.submit()["id"]
    client = api.client()
    client.headers["Authorization"] = "Basic " + base64.b64encode(f"{ann.name}:{PASSWORD}".encode()).decode()
    assert client.patch(f"/v1/models/{job}", json={"status": "halt"}).status_code == 202
    client.headers["Authorization"] = "Basic " + base64.b64encode(f"{ann.name}:wrong".encode()).decode()
    assert client.get("/v1/models").status_code == 401
    _, halted, refused = new()
    assert (halted.actor, halted.user, halted.action, halted.object_id) == ("password", ann.name, "jobs.halt", job)
    assert (refused.action, refused.object_id, refused.status) == ("sign-in", ann.name, 401)


def test_mlflows_changes_are_recorded_but_not_what_a_training_logs(ann: Person, new: New) -> None:
    made = ann.http.post("/api/2.0/mlflow/runs/create", json={"experiment_id": "0"}).json()
    run = made["run"]["info"]["run_id"]
    logged = {"run_id": run, "key": "loss", "value": 0.5, "timestamp": 1_769_847_309_000, "step": 1}
    assert ann.http.post("/api/2.0/mlflow/runs/log-metric", json=logged).status_code == 200
    assert ann.http.post("/api/2.0/mlflow/runs/search", json={"experiment_ids": ["0"]}).status_code == 200
    assert ann.http.post("/api/2.0/mlflow/runs/delete", json={"run_id": run}).status_code == 200
    told = [(record.action, record.object_kind, record.object_id) for record in new()]
    assert told == [("mlflow.runs.create", "run", run), ("mlflow.runs.delete", "run", run)]


def test_what_an_administrator_reads_of_other_projects_is_recorded(ann: Person, root: Person, new: New) -> None:
    for path in (f"/api/v1/projects/{ann.project}/members", f"/api/v1/projects/{ann.project}/quota"):
        assert root.http.get(path).status_code == 200
    assert root.http.get("/api/v1/projects").status_code == 200
    assert root.http.get(f"/api/v1/projects/{root.project}/members").status_code == 200  # its own
    told = [(record.user, record.action, record.project) for record in new()]
    assert told == [
        (root.name, "members.list", ann.project),
        (root.name, "quotas.show", ann.project),
        (root.name, "projects.list", None),
    ]


def test_what_concerns_the_installation_belongs_to_no_project(root: Person, new: New) -> None:
    root.http.post("/api/v1/users", json={"name": "hedy"})
    root.http.post("/api/v1/projects", json={"name": "radios", "owner": "hedy", "allow_untrusted": True})
    root.http.put("/api/v1/projects/radios/members/hedy", json={"role": "owner"})
    told = [(record.action, record.object_id, record.project) for record in new()]
    assert told == [
        ("users.create", "hedy", None),
        ("projects.create", "radios", "radios"),
        ("members.set", "radios/hedy", "radios"),
    ]


def test_a_learner_that_gets_a_secret_is_recorded_and_nothing_else_that_learners_do(
    api: Api, ann: Person, new: New
) -> None:
    ann.http.put("/api/v1/secrets/wandb", json={"value": "k"})
    quiet, plain = ann.submit(SECRET_MANIFEST)["id"], ann.submit()["id"]
    before = len(new())
    attempt = api.attempt(quiet)
    agent = attempt.agents[0]
    assert agent.start()["env"]["KEY"] == "k"
    agent.log(0, "hello")
    assert agent.post("heartbeat").status_code == 200
    api.attempt(plain).agents[0].start()
    [record] = new()[before:]
    assert (record.actor, record.action, record.token_id) == ("learner", "learners.read_secrets", attempt.id)
    assert (record.object_id, record.project) == (quiet, ann.project)


def test_the_events_that_a_user_causes_name_the_user(api: Api, ann: Person) -> None:
    editor = api.person("editor", ann.project_id)
    job = ann.submit()["id"]
    editor.http.post(f"/api/v1/jobs/{job}/halt")
    api.set_state(job, "HALTED", "halted")
    ann.http.post(f"/api/v1/jobs/{job}/resume")
    ann.http.delete(f"/api/v1/jobs/{job}")
    events = ann.http.get(f"/api/v1/jobs/{job}/events").json()["events"]
    assert [(event["message"], event["user"]) for event in events] == [
        ("submitted to engine local", ann.name),
        ("halt requested", editor.name),
        ("halted", None),
        ("resumed", ann.name),
        ("delete requested", ann.name),
    ]


# --- no route is forgotten -----------------------------------------------------------------------------------------


def test_every_operation_that_changes_something_says_whether_it_is_recorded(api: Api) -> None:
    undeclared = [
        f"{method.upper()} {path}"
        for path, item in api.openapi["paths"].items()
        for method, operation in item.items()
        if method.upper() in _WRITES and not {"action", "left_out"} & set(operation.get(AUDIT, {}))
    ]
    assert undeclared == []


def test_the_page_about_it_names_every_action(api: Api) -> None:
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    actions = {
        operation[AUDIT]["action"]
        for item in api.openapi["paths"].values()
        for operation in item.values()
        if "action" in operation.get(AUDIT, {})
    }
    assert len(actions) > 30
    assert [action for action in sorted(actions) if f"`{action}`" not in page] == []


def _routes(routes: list[BaseRoute]) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        yield from _routes(getattr(getattr(route, "original_router", None), "routes", []))


def test_so_do_ffdls_and_mlflows_routes_which_the_document_leaves_out(api: Api) -> None:
    found = list(_routes(api.app.router.routes))
    assert {"/v1/models", "/api/2.0/mlflow/runs/create"} <= {route.path for route in found}
    undeclared = [
        route.path for route in found if (route.methods or set()) & _WRITES and AUDIT not in (route.openapi_extra or {})
    ]
    assert undeclared == []


def test_a_route_without_a_declaration_is_recorded_all_the_same(api_settings: Settings) -> None:
    from fastapi.testclient import TestClient

    app = create_app(api_settings)

    @app.post("/forgotten/{name}")
    def forgotten(name: str) -> str:
        return name

    @app.post("/broken", openapi_extra=audited("test.break"))
    def broken() -> None:
        raise RuntimeError("a fault of the server's")

    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.post("/forgotten/x").status_code == 200
        assert client.post("/broken").status_code == 500
        with app.state.context.database.transaction() as session:
            query = select(AuditRecord.action, AuditRecord.status).order_by(AuditRecord.id.desc()).limit(2)
            found = [tuple(row) for row in session.execute(query)]
    assert found == [("test.break", 500), ("POST /forgotten/{name}", 200)]


# --- only ever more ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["update audit set user_name = 'eve'", "delete from audit", "truncate audit"])
def test_the_database_refuses_to_change_records(api: Api, ann: Person, change: str) -> None:
    ann.submit()
    with pytest.raises(ProgrammingError, match="append-only"), api.context.database.transaction() as session:
        session.execute(text(change))


def test_even_the_retention_deletes_no_record_of_the_last_30_days(api: Api, ann: Person) -> None:
    ann.submit()
    with pytest.raises(ProgrammingError, match="append-only"), api.context.database.transaction() as session:
        audit.expire(session, timedelta(0), 10_000)


def test_the_retention_deletes_old_records_and_records_that(api: Api, new: New) -> None:
    with api.context.database.transaction() as session:
        for days in (399, 401, 500):
            old = {"actor": "system", "address": "", "action": "test.old", "status": 200, "request_id": str(days)}
            session.execute(insert(AuditRecord).values(**old, created_at=func.now() - timedelta(days=days)))
    with api.context.database.transaction() as session:
        assert audit.expire(session, timedelta(days=400), 10_000) == 2
    assert [(record.action, record.request_id, record.count) for record in new()] == [
        ("test.old", "399", 1),
        ("audit.expire", "", 2),
    ]


@contextmanager
def without_the_table(api: Api) -> Iterator[None]:
    with api.context.database.transaction() as session:
        session.execute(text("alter table audit rename to audit_away"))
    try:
        yield
    finally:
        with api.context.database.transaction() as session:
            session.execute(text("alter table audit_away rename to audit"))


def test_an_act_without_a_record_never_looks_like_a_success(api: Api, ann: Person) -> None:
    with without_the_table(api):
        key = {"Idempotency-Key": "again"}
        refused = ann.http.post("/api/v1/jobs", json={"manifest": HELLO}, headers=key)
        assert (refused.status_code, code_of(refused)) == (503, "audit_unavailable")
        assert ann.http.post("/api/v1/jobs", json={"manifest": "name: x"}).status_code == 400
        assert ann.http.get("/api/v1/jobs").status_code == 200
        assert ann.http.patch("/v1/models/job-1", json={"status": "halt"}).status_code == 404
    again = ann.http.post("/api/v1/jobs", json={"manifest": HELLO}, headers=key)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    metrics = ann.http.get("/metrics").text
    failures = next(line for line in metrics.splitlines() if line.startswith("weft_api_audit_failures_total"))
    assert float(failures.split()[1]) == 3


# --- noise ---------------------------------------------------------------------------------------------------------


def test_refusals_of_nobody_are_counted_instead_of_filling_the_table(api: Api, new: New) -> None:
    stranger = api.client("weft_u_" + "x" * 43)
    for _ in range(20):
        assert stranger.post("/api/v1/jobs", json={}).status_code == 401
    [first] = new()
    assert (first.actor, first.action, first.status, first.count) == ("anonymous", "jobs.submit", 401, 1)
    RECORDER.of(api.context)._flush()  # as after a minute
    assert [record.count for record in new()] == [1, 19]
    assert stranger.post("/api/v1/jobs", json={}).status_code == 401
    assert [record.count for record in new()] == [1, 19, 1]


def test_ever_new_addresses_fill_a_bounded_number_of_rows(api: Api, new: New) -> None:
    recorder = Recorder(api.context)
    refusal = Entry(ActorKind.ANONYMOUS, None, None, None, "", "jobs.submit", None, None, None, None, 401, "r")
    for number in range(1500):
        assert recorder.record(replace(refusal, address=f"2001:db8::{number:x}"))
    recorder.close()
    records = new()
    assert len(records) == 1002
    assert [(record.address, record.count) for record in records[-2:]] == [("many", 1), ("many", 499)]


def test_records_that_come_while_others_are_written_are_written_together(api: Api) -> None:
    recorder = Recorder(api.context)
    entry = Entry(
        ActorKind.SYSTEM, None, None, None, "", "together", "test", None, None, None, 200, f"r-{uuid.uuid4().hex}"
    )
    stored: list[bool] = []
    with counted(api) as found, recorder._writing:
        threads = [threading.Thread(target=lambda: stored.append(recorder.record(entry))) for _ in range(5)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(recorder._waiting) == 5, "all wait")
        assert not found.statements
        recorder._write_waiting()
    for thread in threads:
        thread.join(300)
    assert stored == [True] * 5
    assert len(found.statements) == 1, "one statement for all"
    with api.context.database.autocommit() as connection:
        query = select(func.count()).where(AuditRecord.request_id == entry.request_id)
        assert connection.scalar(query) == 5
