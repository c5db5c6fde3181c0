"""The store's rules on a real Postgres: the tenant-scoped door, the verbs, and the constraints of the database."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import Column, LargeBinary, delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from weft_core.lifecycle.states import (
    ACTIVE,
    TERMINAL,
    TRANSITIONS,
    Desired,
    IllegalTransition,
    JobState,
    check_transition,
)
from weft_core.secrets import SecretBox, SecretsUnreadable, generate_key
from weft_core.store import jobs
from weft_core.store.database import Database
from weft_core.store.models import (
    Attempt,
    EngineStatus,
    Event,
    IdempotencyKey,
    Job,
    LogCursor,
    Project,
    ScheduleRow,
    Secret,
    SigningKey,
    SweepRow,
    User,
)
from weft_core.store.models.base import Base
from weft_core.store.rotate import rotate
from weft_core.store.scope import Scope

_numbers = itertools.count()


def tenant(session: Session, name: str) -> Scope:
    session.add(Project(id=f"proj-{name}", name=name))
    session.add(User(id=f"user-{name}", name=name))
    session.flush()
    return Scope(session, f"proj-{name}")


def new_job(scope: Scope, **values: Any) -> Job:
    user = scope.project_id.replace("proj", "user")
    job = Job(user_id=user, name="j", manifest={}, engine="local", priority=50, learners=1, retries=0, **values)
    return jobs.submit(scope, job, notes=["a note"])


def new_attempt(scope: Scope, job: Job, n: int) -> Attempt:
    unique = f"{job.id}-{n}-{next(_numbers)}"
    attempt = Attempt(
        id=unique,
        job_id=job.id,
        n=n,
        engine="local",
        run_name=unique,
        resources={},
        token_sha256=unique,
        token_ciphertext=b"",
    )
    scope.add(attempt)
    scope.session.flush()
    return attempt


def events(session: Session, job: Job) -> list[Event]:
    return list(session.scalars(select(Event).where(Event.job_id == job.id).order_by(Event.id)))


def test_a_scope_sees_its_own_project_only(database: Database) -> None:
    with database.transaction() as session:
        ours, theirs = tenant(session, "ours"), tenant(session, "theirs")
        job = new_job(ours)
        assert ours.find(Job, Job.id == job.id) is job
        assert theirs.find(Job, Job.id == job.id) is None
        assert theirs.all(theirs.select(Event)) == []


def test_a_scope_refuses_tables_that_belong_to_no_project(database: Database) -> None:
    with database.transaction() as session, pytest.raises(TypeError, match="belongs to no project"):
        Scope(session, "proj-any").select(EngineStatus)


def test_submit_is_queued_due_and_has_its_history(database: Database) -> None:
    with database.transaction() as session:
        job = new_job(tenant(session, "a"))
        session.refresh(job)
        assert (job.state, job.desired, job.attempt) == ("QUEUED", "RUNNING", 0)
        assert job.next_step_at is not None
        assert [event.kind for event in events(session, job)] == ["submitted", "note"]
        assert session.get(LogCursor, job.id) is not None


def test_transition_writes_its_event_and_terminal_states_end_the_stepping(database: Database) -> None:
    with database.transaction() as session:
        job = new_job(tenant(session, "a"))
        jobs.transition(session, job, JobState.PENDING, "admitted")
        jobs.transition(session, job, JobState.FAILED, "learner 1: exit code 3", "C201")
        session.flush()
        session.refresh(job)
        assert (job.state, job.error_code, job.next_step_at) == ("FAILED", "C201", None)
        assert job.ended_at is not None
        assert [event.state for event in events(session, job) if event.kind == "state"] == ["PENDING", "FAILED"]


def test_terminal_states_absorb() -> None:
    for before in TERMINAL:
        assert TRANSITIONS[before] == frozenset()
    with pytest.raises(IllegalTransition, match="can't go from COMPLETED to QUEUED"):
        check_transition(JobState.COMPLETED, JobState.QUEUED)


def test_every_state_can_be_reached_and_every_active_one_can_end_or_be_retried() -> None:
    reached, frontier = {JobState.QUEUED}, [JobState.QUEUED]
    while frontier:
        for after in TRANSITIONS[frontier.pop()] - reached:
            reached.add(after)
            frontier.append(after)
    assert reached == set(JobState)
    for state in ACTIVE:
        assert {JobState.FAILED, JobState.HALTED, JobState.QUEUED} <= TRANSITIONS[state]


def test_the_database_refuses_a_second_open_attempt(database: Database) -> None:
    with database.transaction() as session:
        scope = tenant(session, "a")
        job = new_job(scope)
        first = new_attempt(scope, job, 1)
        with pytest.raises(IntegrityError, match="uq_attempts_open"), session.begin_nested():
            new_attempt(scope, job, 2)
        first.ended_at = job.created_at
        session.flush()
        new_attempt(scope, job, 2)


def test_the_database_refuses_a_state_that_is_none(database: Database) -> None:
    with database.transaction() as session:
        job = new_job(tenant(session, "a"))
        job.state = "RUNNING"
        with pytest.raises(IntegrityError, match="ck_jobs_state"):
            session.flush()
        session.rollback()


def test_halt_resume_delete_are_idempotent_and_say_what_does_not_fit(database: Database) -> None:
    with database.transaction() as session:
        job = new_job(tenant(session, "a"))
        jobs.request_halt(session, job)
        jobs.request_halt(session, job)
        assert [event.message for event in events(session, job)].count("halt requested") == 1
        with pytest.raises(jobs.Conflict, match="still being halted"):
            jobs.request_resume(session, job)
        jobs.transition(session, job, JobState.HALTED, "halted by request")
        jobs.request_halt(session, job)
        jobs.request_resume(session, job)
        assert (job.state, job.desired) == (JobState.QUEUED, Desired.RUNNING)
        jobs.request_resume(session, job)
        jobs.request_delete(session, job)
        jobs.request_delete(session, job)
        for verb in (jobs.request_halt, jobs.request_resume):
            with pytest.raises(jobs.Conflict, match="being deleted"):
                verb(session, job)


def test_a_completed_job_can_be_neither_halted_nor_resumed(database: Database) -> None:
    with database.transaction() as session:
        job = new_job(tenant(session, "a"))
        jobs.transition(session, job, JobState.PENDING, "")
        jobs.transition(session, job, JobState.COMPLETED, "")
        with pytest.raises(jobs.Conflict, match="COMPLETED already"):
            jobs.request_halt(session, job)
        with pytest.raises(jobs.Conflict, match="rerun"):
            jobs.request_resume(session, job)


def test_deleting_a_job_takes_all_its_rows_along(database: Database) -> None:
    with database.transaction() as session:
        scope = tenant(session, "a")
        job = new_job(scope)
        new_attempt(scope, job, 1)
        session.execute(delete(Job).where(Job.id == job.id))
        for model in (Attempt, Event, LogCursor):
            assert scope.all(scope.select(model)) == []


_NOT_ENCRYPTED = {"log_chunks", "metric_batches", "metric_records", "metric_blocks"}
"""Tables with bytes that are no secrets. All other bytes must move to the new key."""


def test_rotation_moves_all_stored_secrets_to_the_new_key_or_none(database: Database) -> None:
    old, new, lost = ([SecretStr(generate_key())] for _ in range(3))
    with database.transaction() as session:
        scope = tenant(session, "a")
        scope.add(Secret(id="sec-1", name="s", ciphertext=SecretBox(old).encrypt("geheim")))
        attempt = new_attempt(scope, new_job(scope), 1)
        attempt.token_ciphertext = SecretBox(old).encrypt("token")
        stored = {"user_id": "user-a", "name": "s", "manifest": {}, "credentials": SecretBox(old).encrypt("{}")}
        scope.add(ScheduleRow(id="sch-1", **stored))
        scope.add(ScheduleRow(id="sch-2", **{**stored, "credentials": None}))
        scope.add(SweepRow(id="swp-1", **stored))
        times = dict.fromkeys(("signs_from", "signs_until", "published_until"), datetime.now(UTC))
        session.add(SigningKey(id="key-1", public={}, private_ciphertext=SecretBox(old).encrypt("PEM"), **times))
        for name, keys in {"kept": old, "unreadable": lost}.items():
            answer = json.dumps({"id": "tok-1", "sealed": SecretBox(keys).encrypt("weft_u_1").decode()})
            scope.add(IdempotencyKey(key=name, route="POST /tokens", body_sha256="", resource_id=answer))
        scope.add(IdempotencyKey(key="plain", route="POST /jobs", body_sha256="", resource_id="job-1"))
    with pytest.raises(SecretsUnreadable):
        rotate(database, SecretBox(new))
    assert rotate(database, SecretBox(new + old)) == 5
    with database.transaction() as session:
        assert SecretBox(new).decrypt(session.get_one(Secret, "sec-1").ciphertext) == "geheim"
        assert SecretBox(new).decrypt(session.scalars(select(Attempt)).one().token_ciphertext) == "token"
        answers = {row.key: row.resource_id for row in session.scalars(select(IdempotencyKey))}
        sealed = json.loads(answers["kept"])["sealed"].encode()
        assert (SecretBox(new).decrypt(sealed), answers["plain"]) == ("weft_u_1", "job-1")
        for column in _encrypted_columns():
            found = session.scalars(select(column).where(column.is_not(None))).all()
            assert found, f"this test stores nothing in {column}"
            for ciphertext in found:
                SecretBox(new).decrypt(ciphertext)
        scope = Scope(session, "proj-a")
        scope.add(Secret(id="sec-2", name="t", ciphertext=SecretBox(lost).encrypt("x")))
        before = session.get_one(Secret, "sec-1").ciphertext
    with pytest.raises(SecretsUnreadable):
        rotate(database, SecretBox(new))
    with database.transaction() as session:
        assert session.get_one(Secret, "sec-1").ciphertext == before


def _encrypted_columns() -> Iterator[Column[bytes]]:
    for table in Base.metadata.sorted_tables:
        if table.name not in _NOT_ENCRYPTED:
            yield from (column for column in table.columns if isinstance(column.type, LargeBinary))
