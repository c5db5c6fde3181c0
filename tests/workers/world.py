"""A tenant with jobs, and the API's actions on behalf of users and learners, against a real database."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, or_, select, text, update
from sqlalchemy.orm import Session
from tests.workers.fake_engine import GIB, FakeEngine

from weft_core.ids import new_id
from weft_core.lifecycle.states import LearnerPhase
from weft_core.log_archive import pack_times
from weft_core.objects import exit_key
from weft_core.store import jobs
from weft_core.store.models import Attempt, Event, Installation, Job, Learner, LogChunk, LogSource, Project, User
from weft_core.store.scope import Scope
from weft_workers.context import Context
from weft_workers.reconcile import step

PROJECT, USER = "prj-1", "usr-1"


@dataclass
class World:
    context: Context
    engine: FakeEngine

    def __post_init__(self) -> None:
        with self.context.database.transaction() as session:
            session.merge(Installation(singleton=True, id=self.context.installation))
            session.merge(Project(id=PROJECT, name="lab"))
            session.merge(User(id=USER, name="ada"))

    def transaction(self) -> AbstractContextManager[Session]:
        return self.context.database.transaction()

    # --- the user ---

    def submit(self, **changes: Any) -> str:
        """A job of one learner with one CPU, but for ``changes``; not stepped yet."""
        resources = {"cpus": 1, "gpus": 0, "memory": GIB, **changes.pop("resources", {})}
        manifest = {
            "resources": resources,
            "framework": {"name": "custom", "image": changes.pop("image", "python:3.11"), "command": "true"},
            "max_runtime_seconds": changes.pop("max_runtime", None),
            "profile": changes.pop("profile", None),
            "elastic": changes.pop("elastic", None),
            "stall": changes.pop("stall", None),
            "data_stores": changes.pop("data_stores", []),
            "repo": changes.pop("repo", None),
            "notify": changes.pop("notify", []),
            "rules": changes.pop("rules", []),
        }
        project, user = changes.pop("project", PROJECT), changes.pop("user", USER)
        fields = {"name": "job", "engine": "local", "priority": 50, "learners": 1, "retries": 0, **changes}
        with self.transaction() as session:
            job = Job(id=new_id("job"), user_id=user, manifest=manifest, **fields)
            jobs.submit(Scope(session, project), job, [])
        return job.id

    def halt(self, job_id: str) -> None:
        with self.transaction() as session:
            jobs.request_halt(session, session.get_one(Job, job_id))

    def resume(self, job_id: str) -> None:
        with self.transaction() as session:
            jobs.request_resume(session, session.get_one(Job, job_id))

    def delete(self, job_id: str) -> None:
        with self.transaction() as session:
            jobs.request_delete(session, session.get_one(Job, job_id))

    # --- the learners, by way of the API ---

    def phase(self, job_id: str, phase: LearnerPhase, rank: int | None = None) -> None:
        """All learners (or one) say that they are in ``phase``."""
        values: dict[str, Any] = {"phase": phase.value, "phase_since": func.now(), "heartbeat_at": func.now()}
        self._learners(job_id, rank, values | {"started_at": func.coalesce(Learner.started_at, func.now())})

    def exit(self, job_id: str, code: int = 0, rank: int | None = None, reason: str = "", lines: str = "") -> None:
        """All learners (or one) report how they ended."""
        values: dict[str, Any] = {"phase": LearnerPhase.EXITED.value, "exited_at": func.now(), "exit_code": code}
        self._learners(job_id, rank, values | {"exit_reason": reason or None, "last_lines": lines or None})

    def _learners(self, job_id: str, rank: int | None, values: dict[str, Any]) -> None:
        with self.transaction() as session:
            # The job's row first, as in the API: a step holds it while it reads the learners.
            session.execute(update(Job).where(Job.id == job_id).values(next_step_at=func.now()))
            attempt = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None)).scalar_subquery()
            which = update(Learner).where(Learner.attempt_id == attempt)
            session.execute(
                which.values(**values) if rank is None else which.where(Learner.rank == rank).values(**values)
            )

    def leave_exit_report(self, job_id: str, rank: int, code: int, reason: str = "") -> None:
        key = exit_key(PROJECT, job_id, self.job(job_id).attempt, rank)
        self.context.objects.put(key, json.dumps({"rank": rank, "exit_code": code, "reason": reason}).encode())

    def write_log(self, job_id: str, rank: int, body: str) -> None:
        with self.transaction() as session:
            lines, attempt = body.count("\n"), self.job(job_id).attempt
            session.add(LogSource(job_id=job_id, attempt=attempt, rank=rank, project_id=PROJECT, next_sequence=1))
            session.add(
                LogChunk(
                    job_id=job_id, first_line=0, project_id=PROJECT, attempt=attempt, rank=rank, lines=lines,
                    body=body.encode(), times=pack_times([0] * lines), latest=0,
                )
            )  # fmt: skip

    # --- time and the workers ---

    def step(self, job_id: str, times: int = 1) -> Job | None:
        """Step a job as if it were due. One that waits has no steps: the queue is planned, as when it was submitted."""
        for _ in range(times):
            with self.transaction() as session:
                active = or_(Job.next_step_at.is_not(None), Job.state == "QUEUED")
                session.execute(update(Job).where(Job.id == job_id, active).values(next_step_at=func.now()))
            step(self.context, job_id, linger=False)
        return self.find(job_id)

    def running(self, **changes: Any) -> str:
        """A submitted job whose learners run user code."""
        job_id = self.submit(**changes)
        self.step(job_id)
        self.phase(job_id, LearnerPhase.PROCESSING)
        self.step(job_id)
        return job_id

    def pass_time(self, seconds: float) -> None:
        """Makes all rows so much older; less than 0: newer, so that no pause which has begun
        is over before its test says so, however busy the machine is."""
        columns = {
            "attempts": ["launched_at", "held_at", "stop_requested_at", "ended_at", "grow_at"],
            "learners": [
                "launched_at",
                "started_at",
                "heartbeat_at",
                "absent_since",
                "active_at",
                "exited_at",
                "broken_at",
                "saved_at",
            ],
            "rounds": ["opened_at", "closed_at"],
            "events": ["created_at"],
            "log_chunks": ["created_at"],
            "log_sources": ["written_at"],
            "project_usage": ["at"],
            "jobs": ["lease_until", "next_step_at", "keepalive_until"],
        }
        with self.transaction() as session:
            for table, names in columns.items():
                changes = ", ".join(f"{name} = {name} - make_interval(secs => :s)" for name in names)
                session.execute(text(f"update {table} set {changes}"), {"s": seconds})

    # --- what is there ---

    def find(self, job_id: str) -> Job | None:
        with self.transaction() as session:
            return session.get(Job, job_id)

    def job(self, job_id: str) -> Job:
        found = self.find(job_id)
        assert found is not None
        return found

    def attempts(self, job_id: str) -> list[Attempt]:
        with self.transaction() as session:
            return list(session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.n)))

    def learners(self, job_id: str) -> list[Learner]:
        with self.transaction() as session:
            return list(
                session.scalars(
                    select(Learner).join(Attempt, Attempt.id == Learner.attempt_id)
                    .where(Attempt.job_id == job_id).order_by(Attempt.n, Learner.rank)
                )
            )  # fmt: skip

    def events(self, job_id: str, kind: str | None = None) -> list[str]:
        with self.transaction() as session:
            return [event.message for event in self._events(session, job_id) if kind in (None, event.kind)]

    def states(self, job_id: str) -> list[str]:
        with self.transaction() as session:
            return [event.state for event in self._events(session, job_id) if event.kind == "state" and event.state]

    def _events(self, session: Session, job_id: str) -> list[Event]:
        return list(session.scalars(select(Event).where(Event.job_id == job_id).order_by(Event.id)))

    @property
    def run(self) -> str:
        """The name of the only run there is."""
        (name,) = self.engine.runs
        return name
