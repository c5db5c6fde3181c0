"""Users, learners, engines and time in any order, against a real database: the invariants always hold."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select
from tests.workers.fake_engine import GIB, FakeEngine
from tests.workers.world import World

from weft_core.engine import LearnerState, Node
from weft_core.lifecycle.states import ACTIVE, TERMINAL, TRANSITIONS, JobState, LearnerPhase
from weft_core.store.jobs import Conflict
from weft_core.store.models import Queue
from weft_workers.context import Context
from weft_workers.observing import Ages, ObservedEngine


class Life(RuleBasedStateMachine):
    """One job's life."""

    context: Context  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self.engine = FakeEngine(nodes=tuple(Node(f"node-{n}", cpus=4, gpus=4, memory=16 * GIB) for n in (1, 2)))
        engines = {"local": ObservedEngine(self.engine, "local", Ages(0, 0, 0))}
        self.world = World(replace(self.context, engines=engines), self.engine)

    @initialize(learners=st.integers(1, 2), retries=st.integers(0, 2))
    def submit(self, learners: int, retries: int) -> None:
        self.job = self.world.submit(learners=learners, retries=retries)
        self.learners, self.lost = learners, set[str]()

    @property
    def alive(self) -> bool:
        return self.world.find(self.job) is not None

    @rule(times=st.integers(1, 3))
    def step(self, times: int) -> None:
        self.world.step(self.job, times)

    @rule(what=st.sampled_from(["halt", "resume", "halt", "delete"]), really=st.integers(0, 2))
    def user(self, what: str, really: int) -> None:
        # Preconditions would ask the database what may be drawn; and a delete is seldom, as it ends the story.
        if not self.alive or (what == "delete" and really):
            return
        with contextlib.suppress(Conflict):
            getattr(self.world, what)(self.job)

    @rule(phase=st.sampled_from(list(LearnerPhase)[1:5]), rank=st.integers(0, 1))
    def progress(self, phase: LearnerPhase, rank: int) -> None:
        learners = [learner for learner in self.world.learners(self.job) if learner.rank == rank][-1:]
        if learners and LearnerPhase(learners[0].phase).order < phase.order:
            self.world.phase(self.job, phase, rank)

    @rule(code=st.sampled_from([0, 0, 3]), rank=st.none() | st.integers(0, 1), reports=st.booleans())
    def end(self, code: int, rank: int | None, reports: bool) -> None:
        if reports:
            self.world.exit(self.job, code, rank)
        for name, run in list(self.engine.runs.items()):
            for ended_rank in list(run.learners) if rank is None else [rank] if rank in run.learners else []:
                self.engine.end_learner(name, ended_rank, exit_code=code)

    @rule(how=st.sampled_from(["vanish", "kill", "interrupt", "gone", "held", "free"]))
    def fault(self, how: str) -> None:
        for name, run in list(self.engine.runs.items()):
            if how == "gone":
                del self.engine.runs[name]
            elif how in ("held", "free"):
                self.engine.runs[name] = replace(run, held="waits in queue a" if how == "held" else "")
            elif run.learners and how == "vanish":
                self.engine.lose_learner(name, min(run.learners))
            elif run.learners:
                self.engine.end_learner(name, min(run.learners), exit_code=-9, interrupted=how == "interrupt")

    @rule(name=st.sampled_from(["node-1", "node-2"]), back=st.booleans())
    def node(self, name: str, back: bool) -> None:
        self.engine.lose_node(name, back=back)

    @rule(seconds=st.sampled_from([1, 20, 100, 1000]))
    def time(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @rule()
    def toggle_reachable(self) -> None:
        self.engine.unreachable = "" if self.engine.unreachable else "timed out"

    @rule()
    def toggle_obedient(self) -> None:
        self.engine.obeys = not self.engine.obeys

    @rule()
    def late_create(self) -> None:
        self.engine.late_create = True

    @invariant()
    def laws(self) -> None:
        if not hasattr(self, "job") or not self.alive:
            return
        job, attempts = self.world.job(self.job), self.world.attempts(self.job)
        # Runs that were cut off when their attempt ended: housekeeping ends them when the node is back.
        self.lost |= {
            name for name, run in self.engine.runs.items() if any(x.unreachable for x in run.learners.values())
        }
        state, opened = JobState(job.state), [attempt for attempt in attempts if attempt.ended_at is None]
        assert len(opened) == (state in ACTIVE), "an attempt is open in the active states, and one at most"
        assert [attempt.n for attempt in attempts] == list(range(1, job.attempt + 1))
        assert all(attempt.outcome for attempt in attempts if attempt.ended_at)
        assert job.failures <= job.retries + 1
        assert job.lease_token is None, "every step gives its lease back"
        if state is JobState.QUEUED and job.next_step_at is None:
            with self.world.transaction() as session:
                assert session.scalar(select(Queue.next_pass_at)) is not None, "its queue is planned again"
        elif state not in TERMINAL:
            assert job.next_step_at is not None, "somebody comes back to it"
        assert len(self.engine.created) == len(set(self.engine.created)), "nothing is launched twice"
        live = {
            name
            for name, run in self.engine.runs.items()
            if any(
                learner.state is not LearnerState.EXITED and not learner.unreachable
                for learner in run.learners.values()
            )
        }
        # A learner that is cut off may live on, but its token is no longer valid.
        assert live - self.lost <= {attempt.run_name for attempt in opened}, "nothing runs that no open attempt owns"
        # Several steps may pass between two looks, so what must hold of states is read from the events.
        path = [JobState.QUEUED, *map(JobState, self.world.states(self.job))]
        for before, after in itertools.pairwise(path):
            resumed = after is JobState.QUEUED and before in (JobState.HALTED, JobState.FAILED)
            assert after in TRANSITIONS[before] or resumed

    def teardown(self) -> None:
        """Left alone with a healthy engine whose learners end, the job comes to an end."""
        if not hasattr(self, "job"):
            return
        self.engine.unreachable, self.engine.obeys, self.engine.late_create = "", True, False
        for name in ("node-1", "node-2"):
            self.engine.lose_node(name, back=True)
        for _ in range(12):
            if not self.alive or JobState(self.world.job(self.job).state) in TERMINAL:
                break
            self.world.pass_time(120)
            if self.engine.runs:
                self.world.exit(self.job, 0)
            self.world.step(self.job, times=2)
        else:
            raise AssertionError(f"stuck: {self.world.job(self.job).state} {self.world.job(self.job).reason}")
        if self.alive and self.world.job(self.job).desired != "DELETED":
            self.world.delete(self.job)
            self.world.step(self.job)
        self.world.step(self.job)
        assert not self.alive


def test_what_must_hold_always_holds(context: Context) -> None:
    Life.context = context
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
