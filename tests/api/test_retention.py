"""The retention of a project over HTTP, and the answers of reads about removed data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import select
from tests.api.conftest import Api, Person, code_of

from weft_core.settings import KeepSettings, RetentionSettings
from weft_core.store.models import AuditRecord, Job, LogCursor, Project

ALL = {"days": None, "bytes": None, "own": False, "held": 0, "removed": 0, "removed_bytes": 0, "removed_at": None}


@pytest.fixture
def limited(api: Api) -> Iterator[None]:
    """An installation that keeps logs for 30 days, and up to 1000 bytes of them."""
    before = api.context.settings.retention
    api.context.settings.retention = RetentionSettings(logs=KeepSettings(days=30, bytes=1000))
    yield
    api.context.settings.retention = before


def path(who: Person) -> str:
    return f"/api/v1/projects/{who.project}/retention"


def test_a_project_has_its_own_retention_or_the_installations(api: Api, ann: Person, bob: Person) -> None:
    shown = ann.http.get(path(ann)).json()
    assert shown == {kind: ALL | ({} if kind not in ("events", "code") else {"held": None}) for kind in shown}
    assert set(shown) == {"logs", "metrics", "results", "events", "code"}
    body = {"logs": {"days": 30}, "results": {"bytes": 1 << 40}, "code": {"days": 7}}
    changed = ann.http.put(path(ann), json=body)
    assert changed.status_code == 200, changed.text
    assert changed.json()["logs"] == ALL | {"days": 30, "own": True}
    assert changed.json()["results"] == ALL | {"bytes": 1 << 40, "own": True}
    assert changed.json()["events"] == ALL | {"held": None}
    assert ann.http.get(path(ann)).json() == changed.json()
    with api.context.database.transaction() as session:
        project = session.get_one(Project, ann.project_id)
        assert project.retention["code"] == {"days": 7, "bytes": None}
        recorded = session.scalars(
            select(AuditRecord.action).where(
                AuditRecord.object_id == ann.project, AuditRecord.action == "retention.set"
            )
        ).all()
    assert recorded == ["retention.set"]
    assert ann.http.put(path(ann), json={}).json() == shown
    for wrong in ({"logs": {"days": 0}}, {"logs": {"days": True}}, {"code": {"bytes": 1}}, {"lines": None}):
        assert code_of(ann.http.put(path(ann), json=wrong)) == "invalid_request"
    assert code_of(bob.http.get(path(ann))) == "not_found"
    assert code_of(bob.http.put(path(ann), json={})) == "not_found"


@pytest.mark.usefixtures("limited")
def test_only_an_administrator_has_a_project_keep_more_than_the_installation(ann: Person, root: Person) -> None:
    assert ann.http.get(path(ann)).json()["logs"] == ALL | {"days": 30, "bytes": 1000}
    for more in ({"days": 31, "bytes": 1000}, {"days": 30}, {"bytes": 1000}, {}):
        answer = ann.http.put(path(ann), json={"logs": more})
        assert (answer.status_code, code_of(answer)) == (403, "forbidden")
        assert "which keeps 30 days and 1000 bytes" in answer.json()["detail"]
    assert ann.http.put(path(ann), json={"logs": {"days": 3, "bytes": 10}}).status_code == 200
    assert root.http.put(path(ann), json={"logs": {}}).json()["logs"]["days"] is None
    kept = ann.http.put(path(ann), json={"logs": {}, "metrics": {"days": 5}})
    assert kept.status_code == 200, "what an administrator has allowed stays as it is"


def test_reads_say_what_is_gone(api: Api, ann: Person) -> None:
    job = ann.submit()["id"]
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job, state)
    at = datetime(2026, 1, 31, 8, tzinfo=UTC).isoformat()
    with api.context.database.transaction() as session:
        session.get_one(LogCursor, job).next_line = 12
        session.get_one(LogCursor, job).archived = 12
        told = {"at": at, "lines": 12, "bytes": 100}
        session.get_one(Job, job).removed = {"logs": told, "results": told}
    page = ann.http.get(f"/api/v1/jobs/{job}/logs").json()
    assert (page["lines"], page["total"], page["removed"], page["end"]) == ([], 12, 12, True)
    assert ann.http.get(f"/api/v1/jobs/{job}/logs", params={"tail": 5}).json()["lines"] == []
    shown = ann.http.get(f"/api/v1/jobs/{job}").json()["removed"]
    assert {kind: datetime.fromisoformat(when) for kind, when in shown.items()} == dict.fromkeys(
        ("logs", "results"), datetime.fromisoformat(at)
    )
    gone = ann.http.get(f"/api/v1/jobs/{job}/trained-model")
    assert code_of(gone) == "results_gone"
    assert "removed on 2026-01-31: the project no longer keeps them" in gone.json()["detail"]
