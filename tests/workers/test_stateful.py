"""Lives of jobs in any order of events: users, learners and workers, and an engine in all of its moods.

The API, the store and Postgres are real. The suite lives through a few that are the same every time;
``WEFT_TEST_EXAMPLES=500`` through so many by chance.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import func, select, update
from tests.api.conftest import Agent, Api, Person
from tests.workers.moody_engine import Mood, MoodyEngine
from tests.workers.world import World

from weft_core.lifecycle.states import TERMINAL, TRANSITIONS, JobState
from weft_core.settings import TimingSettings
from weft_core.store.models import Attempt, Event, Job
from weft_workers.context import Context
from weft_workers.housekeeping import Housekeeping
from weft_workers.observing import Ages, ObservedEngine
from weft_workers.reconcile import admit, step

EXAMPLES = int(os.environ.get("WEFT_TEST_EXAMPLES", "0"))
_JOBS = 3
_MANIFEST = "name: life\nretries: %d\nframework: {name: pytorch, command: echo}\n"


@dataclass
class Learner:
    """The only learner of a run: a process that lives until it ends, or the engine ends it."""

    job: str
    run: str
    agent: Agent
    granted: bool = False
    over: bool = False


class Lives(RuleBasedStateMachine):
    """Each example has a person of its own; database and API are those of the test."""

    api: Api
    context: Context

    @initialize()
    def begin(self) -> None:
        self.person: Person = self.api.person()
        self.engine = MoodyEngine()
        engines = {"local": ObservedEngine(self.engine, "local", Ages(0, 0, 0))}
        self.world_context = replace(self.context, engines=engines)
        self.world = World(self.world_context, self.engine)
        self.house = Housekeeping(self.world_context)
        self.jobs: list[str] = []
        self.deleted: set[str] = set()
        self.learners: dict[str, Learner] = {}

    # --- users ---

    @precondition(lambda self: len(self.jobs) < _JOBS)
    @rule(retries=st.integers(0, 1))
    def submit(self, retries: int) -> None:
        self.jobs.append(self.person.submit(_MANIFEST % retries)["id"])

    @precondition(lambda self: self.jobs)
    @rule(verb=st.sampled_from(["halt", "resume"]), which=st.integers(0, _JOBS - 1))
    def ask(self, verb: str, which: int) -> None:
        job = self.jobs[which % len(self.jobs)]
        status = self.person.http.post(f"/api/v1/jobs/{job}/{verb}").status_code
        assert status in ({404, 409} if job in self.deleted else {202, 409}), status

    @precondition(lambda self: self.jobs)
    @rule(which=st.integers(0, _JOBS - 1))
    def delete(self, which: int) -> None:
        job = self.jobs[which % len(self.jobs)]
        assert self.person.http.delete(f"/api/v1/jobs/{job}").status_code in (202, 404)
        self.deleted.add(job)

    # --- learners ---

    @rule(which=st.integers(0, 5))
    def start(self, which: int) -> None:
        if not (learner := self._pick(which, granted=False)):
            return
        answer = learner.agent.post("start", hostname="here")
        if answer.status_code != 200:
            learner.over = True
            return
        others = [other for other in self.learners.values() if other.job == learner.job and other is not learner]
        assert all(other.over or not other.granted or self._ended(other.run) for other in others), "it runs twice"
        learner.granted = True

    @rule(which=st.integers(0, 5))
    def work(self, which: int) -> None:
        if learner := self._pick(which):
            learner.agent.post("phase", phase="PROCESSING")

    @rule(which=st.integers(0, 5))
    def heartbeat(self, which: int) -> None:
        if learner := self._pick(which):
            answer = learner.agent.post("heartbeat")
            if answer.status_code != 200 or answer.json()["stop"]:
                self._end(learner, 143, reports=True)

    @rule(which=st.integers(0, 5), code=st.sampled_from([0, 0, 3]), reports=st.booleans())
    def end(self, which: int, code: int, reports: bool) -> None:
        """The program ends, and the agent says so or dies with it."""
        if learner := self._pick(which):
            self._end(learner, code, reports)

    # --- the engine ---

    @rule(moods=st.lists(st.sampled_from(["good", "times out", "late", "denies"]), min_size=1, max_size=3))
    def change_mood(self, moods: list[Mood]) -> None:
        self.engine.moods = moods

    @rule()
    def catch_up(self) -> None:
        self.engine.catch_up()

    @rule(which=st.integers(0, 5))
    def forget(self, which: int) -> None:
        if names := sorted(self.engine.runs):
            self.engine.forget(names[which % len(names)])

    @rule()
    def remember(self) -> None:
        self.engine.remember()

    @rule(there=st.booleans())
    def reach(self, there: bool) -> None:
        self.engine.unreachable = "" if there else "connection refused"

    # --- workers and time ---

    @rule(times=st.integers(1, 3))
    def sweep(self, times: int) -> None:
        for _ in range(times):
            self._step_all(due=False)

    @rule()
    def poll(self) -> None:
        self._step_all(due=True)

    @rule(seconds=st.sampled_from([3, 40, 200]))
    def pass_time(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @rule()
    def keep_house(self) -> None:
        self.house.check(self.world_context.engines["local"])

    # --- what is always true ---

    @invariant()
    def each_job_is_there_once(self) -> None:
        with self.world.transaction() as session:
            rows = session.scalars(select(Job).where(Job.project_id == self.person.project_id)).all()
            assert {row.id for row in rows} >= set(self.jobs) - self.deleted, "lost"
            for row in rows:
                attempts = session.scalars(select(Attempt).where(Attempt.job_id == row.id)).all()
                open_ = [attempt.n for attempt in attempts if attempt.ended_at is None]
                assert len(open_) <= 1
                assert not (open_ and JobState(row.state) in (*TERMINAL, JobState.QUEUED)), (
                    "an end with an open attempt"
                )
                states = session.scalars(
                    select(Event.state).where(Event.job_id == row.id, Event.kind == "state").order_by(Event.id)
                ).all()
                path = ["QUEUED", *(state for state in states if state)]
                for before, after in pairwise(path):
                    assert before == after or JobState(after) in TRANSITIONS[JobState(before)], path

    @invariant()
    def runs_are_made_once(self) -> None:
        assert len(self.engine.created) == len(set(self.engine.created))

    def teardown(self) -> None:
        """When all is well again, every job comes to an end, and nothing is left."""
        if not hasattr(self, "engine"):
            return
        self.engine.moods, self.engine.unreachable = [], ""
        self.engine.catch_up()
        self.engine.remember()
        quick = self.world_context.settings.model_copy(update={"timings": TimingSettings(orphan_grace=0)})
        house = Housekeeping(replace(self.world_context, settings=quick))
        for _ in range(25):
            if self._quiet():
                break
            self._step_all(due=True)
            for learner in list(self._living()):
                if not learner.granted:
                    answer = learner.agent.post("start", hostname="here")
                    learner.granted, learner.over = answer.status_code == 200, answer.status_code != 200
                if not learner.over:
                    self._end(learner, 0, reports=True)
            house.check(self.world_context.engines["local"])
            self.world.pass_time(100)
        assert self._quiet(), f"stuck: {self._left()}"
        with self.world.transaction() as session:
            rows = session.scalars(select(Job).where(Job.project_id == self.person.project_id)).all()
            assert {row.id for row in rows} == set(self.jobs) - self.deleted

    # --- helpers ---

    def _living(self) -> Iterator[Learner]:
        """The learners whose processes run, those of new runs with them."""
        for spec in self.engine.launches:
            if self.engine.lives(spec.run_name) and spec.run_name not in self.learners:
                agent = Agent(self.api.client(spec.token), 0)
                self.learners[spec.run_name] = Learner(spec.job_id, spec.run_name, agent)
        for learner in self.learners.values():
            if not learner.over and self.engine.lives(learner.run):
                yield learner

    def _pick(self, which: int, granted: bool = True) -> Learner | None:
        there = [learner for learner in self._living() if learner.granted is granted]
        return there[which % len(there)] if there else None

    def _end(self, learner: Learner, code: int, reports: bool) -> None:
        if reports and code == 0 and (answer := learner.agent.post("storing", exit_code=0)).status_code == 200:
            reports = answer.json()["granted"]
        if reports:
            learner.agent.post("exit", exit_code=code, reason=f"exit code {code}", last_lines=[])
        learner.over = True
        if learner.run in self.engine.runs:
            self.engine.end_learner(learner.run, 0, exit_code=0 if reports else -9)
        self.engine.forgotten.pop(learner.run, None)

    def _ended(self, run: str) -> bool:
        with self.world.transaction() as session:
            ended = select(Attempt.ended_at).where(Attempt.run_name == run)
            return session.scalars(ended).one_or_none() is not None

    def _step_all(self, due: bool) -> None:
        with self.world.transaction() as session:
            mine = Job.project_id == self.person.project_id
            if due:
                active = mine & (Job.next_step_at.is_not(None) | (Job.state == "QUEUED"))
                session.execute(update(Job).where(active).values(next_step_at=func.now()))
            jobs = session.scalars(select(Job.id).where(mine, Job.next_step_at <= func.now()).order_by(Job.id)).all()
        for job in jobs:
            step(self.world_context, job, linger=False)
        admit.admit(self.world_context, "local")

    def _left(self) -> list[str]:
        with self.world.transaction() as session:
            rows = session.scalars(select(Job).where(Job.project_id == self.person.project_id)).all()
            ended = {state.value for state in TERMINAL} | {"HALTED"}
            left = [f"{row.id} {row.state} wants {row.desired}: {row.reason}; {row.condition}" for row in rows
                    if row.state not in ended or row.desired == "DELETED" or row.lease_token]  # fmt: skip
        return left + sorted(self.engine.runs)

    def _quiet(self) -> bool:
        return not self._left()


@pytest.mark.timeout(3600)
def test_lives(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(context.settings)
    monkeypatch.setattr(Lives, "api", api, raising=False)
    monkeypatch.setattr(Lives, "context", context, raising=False)
    try:
        run_state_machine_as_test(
            Lives,
            settings=settings(
                max_examples=EXAMPLES or 8,
                stateful_step_count=40,
                derandomize=not EXAMPLES,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        api.stop()
