"""The bench through which a case gets an engine of one kind, and disturbs it. One file a kind; see docs/engines.md."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, TypeVar

from tests.engines import processes
from tests.engines.learners import SLEEPS, LearnersApi
from tests.engines.proxy import Proxy

from weft_core.engine import Capacity, Engine, EngineUnreachable, LearnerObservation, LearnerState, Observation
from weft_core.launch import LaunchSpec, Resources

T = TypeVar("T")
OURS = "inst-ours"
OTHERS = "inst-others"
PATIENCE = 240.0
"""Seconds within which an immediate effect must show; generous, as machines that test are busy."""
MIB = 1 << 20
_SESSION = uuid.uuid4().hex[:4]  # runs of another test session may be on the machine

Ability = Literal["network", "memory limit", "others", "shortening"]
"""Abilities that not every engine has: a network between it and its platform, a kernel that limits memory, other users
whose share it sees, a grace that can be shortened while it runs."""


class NotHere(Exception):
    """This machine lacks something that a kind of engine needs. The message begins with NOT RUN and names it."""


class Bench(ABC):
    """One kind of engine, ready to be used. Made once a session."""

    kind: ClassVar[str]
    lacks: Mapping[Ability, str] = {}
    """Abilities that this kind does not have, each with the reason that the report shows."""
    host = "127.0.0.1"
    """The address at which learners reach this machine."""
    image: str
    """The image that learners run in: has bash, Python and the agent."""
    no_image = "nothing-of-this-name:1.0"
    each = Resources(cpus=0.25, gpus=0, memory=256 * MIB)
    """What an ordinary learner gets."""
    many = 4
    """So many runs that one request for each would be seen."""
    proxy: Proxy | None = None  # None for an engine that lacks "network"
    """Between every engine that :meth:`engine` makes and its server."""

    @abstractmethod
    def engine(self, installation: str = OURS, timeout: float = 20.0) -> Engine:
        """An engine object of its own, as another worker has it; ``timeout`` (seconds) is its setting for a request."""

    @abstractmethod
    def things(self, *run_names: str) -> list[str]:
        """The objects, folders and jobs that exist of some runs, found without the engine; processes aside."""

    @abstractmethod
    def remove_learner(self, run_name: str, rank: int) -> None:
        """Remove a learner without the engine's knowledge, more thoroughly than by killing its agent."""

    @abstractmethod
    def late(self) -> Mapping[str, Any]:
        """The changes to a LaunchSpec that keep its learners STARTING for as long as a case takes."""

    @abstractmethod
    def scarce(self) -> Resources:
        """What one learner alone can have at a time."""

    def scarce_use(self, capacity: Capacity) -> float:
        """How much of it others use."""
        raise NotImplementedError

    def rest(self) -> None:  # noqa: B027 - not every kind keeps something up
        """Between two cases: let go of what the engines of the last keep up, such as threads that watch."""

    # --- what is the same for all ---

    def leftovers(self, *specs: LaunchSpec) -> list[str]:
        """Something that still exists of some runs: their processes are looked for once nothing else is left."""
        return self.things(*(spec.run_name for spec in specs)) or processes.of(specs)

    def kill_agent(self, run_name: str, rank: int) -> None:
        """SIGKILL from outside."""
        processes.agent(run_name, rank).kill()


@dataclass
class Run:
    """One run of a case: its spec and the API that its agents talk to."""

    case: Case
    spec: LaunchSpec
    api: LearnersApi
    finished: bool = False

    def launch(self, engine: Engine | None = None) -> Run:
        (engine or self.case.engine).launch(self.spec)
        return self

    def stop(self, grace: float, engine: Engine | None = None) -> None:
        (engine or self.case.engine).stop(self.spec.run_name, timedelta(seconds=grace))

    def finish(self, engine: Engine | None = None) -> None:
        """The last stop that its case gives it."""
        self.stop(0, engine)
        self.finished = True

    def observe(self, engine: Engine | None = None) -> Observation | None:
        return (engine or self.case.engine).observe().get(self.spec.run_name)

    def wait(self, is_so: Callable[[Observation], object], engine: Engine | None = None) -> Observation:
        """The first observation of it that ``is_so``."""
        return until(lambda: seen if (seen := self.observe(engine)) and is_so(seen) else None, self._describe)

    def started(self, engine: Engine | None = None) -> Run:
        """Wait until its commands run, and the engine says so."""
        until(lambda: self.api.said("ready"), self._describe)
        self.wait(lambda seen: self.states(seen) == [LearnerState.RUNNING] * self.spec.learners, engine)
        return self

    def ended(self) -> dict[int, LearnerObservation]:
        """Its learners, once all have exited."""
        return dict(self.wait(lambda seen: len(seen.learners) == self.spec.learners and seen.gone).learners)

    def forgotten(self, engine: Engine | None = None) -> None:
        """Wait until nothing of it exists and the engine no longer knows it; observing makes the engine clean up."""
        until(lambda: self.observe(engine) is None and not self.leftovers, self._describe)

    @property
    def leftovers(self) -> list[str]:
        return self.case.bench.leftovers(self.spec)

    @staticmethod
    def reasons(seen: Observation) -> str:
        """All that is said of why it does not run."""
        return " ".join([seen.failed, seen.held, *(learner.reason for learner in seen.learners.values())])

    @staticmethod
    def states(seen: Observation) -> list[LearnerState]:
        return [learner.state for _, learner in sorted(seen.learners.items())]

    def _describe(self) -> str:
        try:
            seen: object = self.observe()
        except Exception as error:
            seen = repr(error)
        said = {rank: (learner.phase, learner.lines[-3:]) for rank, learner in self.api.learners.items()}
        return f"{self.spec.run_name}: observed {seen}; agents {self.api.agents}, {said}; there: {self.leftovers}"


class Case:
    """What one test does with an engine. All its runs are stopped at its end."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench = bench
        self.engine = bench.engine()
        self.runs: list[Run] = []
        self._name = name
        self._serving = ExitStack()

    @property
    def proxy(self) -> Proxy:
        assert self.bench.proxy, "require('network') comes first"
        return self.bench.proxy

    def run(self, command: str = SLEEPS, learners: int = 1, **changes: Any) -> Run:
        """A run that has not been launched."""
        job = f"{self._name}-{_SESSION}-{len(self.runs)}"
        api = self._serving.enter_context(
            LearnersApi(f"weft-{job}-1", command, learners, self.bench.host).serving(),
        )
        spec = LaunchSpec(
            run_name=f"weft-{job}-1",
            installation=OURS,
            project_id="prj-suite",
            job_id=job,
            attempt=1,
            learners=learners,
            resources=self.bench.each,
            image=self.bench.image,
            api_url=api.url,
            token=api.token,
            project="suite",
            job_name="a case",
        )
        run = Run(self, replace(spec, **changes), api)
        self.runs.append(run)
        return run

    def close(self) -> None:
        """The engine need not have finished: what is left at the end of all cases is found by :meth:`settle`."""
        for run in self.runs:
            if not run.finished:
                with suppress(EngineUnreachable):
                    run.stop(0, self.bench.engine(run.spec.installation))
        self._serving.close()


def settle(bench: Bench, cases: Sequence[Case]) -> None:
    """Wait until nothing of the closed cases is left; meanwhile engines look on, as they do in the service. It also
    stops a run again as long as it is there: nobody has looked since the case's end, and an engine may have forgotten
    by now that it was stopped."""
    specs = {run.spec.run_name: run.spec for case in cases for run in case.runs}
    engines = [bench.engine(installation) for installation in {spec.installation for spec in specs.values()}]

    def nothing_left() -> bool:
        seen = [(engine, name) for engine in engines for name in engine.observe() if name in specs]
        for engine, name in seen:
            if name not in stopped:
                engine.stop(name, timedelta(0))
                stopped.add(name)
        return not seen and not bench.leftovers(*specs.values())

    stopped: set[str] = set()
    until(nothing_left, lambda: bench.leftovers(*specs.values()))
    bench.rest()
    assert not bench.leftovers(*specs.values()), "something has come back"


def until(condition: Callable[[], T | None], describe: Callable[[], object] = lambda: "") -> T:
    """The first true answer; an engine that can't be reached for a moment is asked again, as the reconciler does."""
    began = time.monotonic()
    while True:
        answer: T | str | None
        try:
            answer = condition()
            if answer:
                return answer
        except EngineUnreachable as error:
            answer = str(error)
        passed = time.monotonic() - began
        assert passed < PATIENCE, f"not within {PATIENCE:g} s; last answer {answer!r}; {describe()}"
        time.sleep(min(max(0.1, passed / 10), 1))  # asking takes CPU time from what is waited for


def answer_of(ask: Callable[[], T]) -> T:
    """What an engine answers, whatever it is, once it can be reached."""
    return until(lambda: (ask(),))[0]


def stays(condition: Callable[[], object], seconds: float) -> None:
    """``condition`` holds, and still is after so many seconds."""
    deadline, over = time.monotonic() + seconds, False
    while not over:
        over = time.monotonic() >= deadline
        assert answer_of(condition)
        time.sleep(0.1)


def in_another_process(work: Callable[[], object]) -> None:
    """``work`` in a fork of this process, as Celery's workers are, with the objects that were made before."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(int(PATIENCE))
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0, "it failed in the other process"
