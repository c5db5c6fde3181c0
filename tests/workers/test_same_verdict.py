"""The same ending gets the same verdict from the service's workers and from `weft run`."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
import yaml
from tests.workers.fake_engine import FakeEngine
from tests.workers.world import World

from weft_core.engine import LaunchRefused
from weft_core.launch import LaunchSpec
from weft_core.lifecycle.failures import headline
from weft_core.lifecycle.states import TERMINAL, LearnerPhase
from weft_core.manifest import parse_manifest
from weft_core.settings import Settings, TimingSettings
from weft_embedded.run.data_dir import LinkedData
from weft_embedded.run.engine import EngineProcess
from weft_embedded.run.folder import choose_folder
from weft_embedded.run.memory import Clock
from weft_embedded.run.request import Request
from weft_embedded.run.runner import Job, Run, Stop
from weft_embedded.run.server import LearnerServer
from weft_embedded.run.stores import find_stores

KILLED = "killed by signal 9 (SIGKILL)"
STEPS = 12
"""More than any ending needs."""


@dataclass(frozen=True)
class Verdict:
    outcome: str
    reason: str
    """It names the learner to blame."""
    error_code: str | None
    exit_code: int | None
    state: str
    """The job's in the end."""


class Side(Protocol):
    """A gang of two learners whose commands run, and what can happen to it."""

    engine: FakeEngine

    def report(self, rank: int, code: int, reason: str = "") -> None:
        """A learner reports its end."""

    def end(self, rank: int, **how: object) -> None:
        """The engine sees the end of a learner's process."""

    def lose(self, rank: int) -> None:
        """The engine does not know a learner any more."""

    def halt(self) -> None: ...

    def later(self, seconds: float) -> None: ...

    def step(self) -> None: ...

    def verdict(self) -> Verdict: ...


class Service:
    """The workers, with a real database."""

    def __init__(self, world: World, **changes: Any) -> None:
        self._world = world
        self.engine = world.engine
        self._job = world.submit(learners=2, **changes)
        world.step(self._job)
        if self.engine.runs:
            world.phase(self._job, LearnerPhase.PROCESSING)
            world.step(self._job)

    def report(self, rank: int, code: int, reason: str = "") -> None:
        self._world.exit(self._job, code, rank, reason)

    def end(self, rank: int, **how: object) -> None:
        self.engine.end_learner(self._world.run, rank, **how)

    def lose(self, rank: int) -> None:
        self.engine.lose_learner(self._world.run, rank)

    def halt(self) -> None:
        self._world.halt(self._job)

    def later(self, seconds: float) -> None:
        self._world.pass_time(seconds)

    def step(self) -> None:
        self._world.step(self._job)

    def verdict(self) -> Verdict:
        [attempt] = self._world.attempts(self._job)
        assert attempt.outcome is not None
        state = self._world.job(self._job).state
        reason = _timeless(headline(attempt.reason))
        return Verdict(attempt.outcome, reason, attempt.error_code, attempt.exit_code, state)


class _Clock(Clock):
    """One that can be put forward."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return super().__call__() + self.ahead


class _Process:
    """The engine's process, in this one."""

    over = broken = False

    def __init__(self, engine: FakeEngine, folder: Path, spec: LaunchSpec, tell: Callable[..., None]) -> None:
        self._engine, self._name, self._tell = engine, spec.run_name, tell
        try:
            engine.launch(spec)
        except LaunchRefused as error:
            self.over = True
            tell({"refused": str(error), "code": error.code})
            return
        folders = [folder / str(rank) for rank in range(spec.learners)]
        for path in folders:
            path.mkdir()
        tell({"folders": [str(path) for path in folders]})
        self.look()

    def look(self) -> None:
        seen = self._engine.observe().get(self._name)
        if seen is None:
            self.over = True
            self._tell({"gone": True})
        else:
            self._tell({"seen": {**asdict(seen), "learners": [asdict(learner) for learner in seen.learners.values()]}})

    def stop(self, grace: float) -> None:
        self._engine.stop(self._name, timedelta(seconds=grace))
        self.look()

    def close(self) -> None:
        pass


class Here:
    """`weft run`, with the learners' API and an engine with scripted observations."""

    def __init__(self, engine: FakeEngine, folder: Path, timings: TimingSettings, **changes: Any) -> None:
        text = yaml.safe_dump(
            {"name": "job", "learners": 2, "framework": {"name": "python", "command": "true"}}
            | {"cpus": 1, "memory": "1 GiB"}
            | changes
        )
        parsed, request = parse_manifest(text, Settings()), Request(manifest=text, folder=folder)
        self.engine = engine
        self._folder = folder
        self._clock = _Clock()
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        out = choose_folder(request, "job")
        out.incoming.mkdir(parents=True)
        server = LearnerServer({"results": out.results, "checkpoints": out.checkpoints}, out.incoming, None)
        job = Job(
            parsed.manifest, find_stores(request, parsed, {}), LinkedData([], True, 2), {}, None, None, timings, 0
        )
        self._process: _Process | None = None
        self._run = Run(job, out, server, self._news, lambda *_, **__: None, self._start, self._clock)
        self.step()
        self.step()
        if self.engine.runs:
            for rank in (0, 1):
                self._call("start", rank)
                self._call("phase", rank, phase="PROCESSING")
            self.step()

    def _start(self, spec: LaunchSpec, tell: Callable[..., None]) -> EngineProcess:
        self._process = _Process(self.engine, self._folder, spec, tell)
        return cast(EngineProcess, self._process)

    def _call(self, operation: str, rank: int, **fields: Any) -> None:
        gang = self._run.memory.gang
        assert gang is not None
        getattr(gang, operation)({"rank": rank, "instance": f"agent-{rank}", **fields})

    def _look(self) -> None:
        assert self._process is not None
        self._process.look()

    def report(self, rank: int, code: int, reason: str = "") -> None:
        self._call("exit", rank, exit_code=code, reason=reason)

    def end(self, rank: int, **how: object) -> None:
        [name] = self.engine.runs
        self.engine.end_learner(name, rank, **how)
        self._look()

    def lose(self, rank: int) -> None:
        [name] = self.engine.runs
        self.engine.lose_learner(name, rank)
        self._look()

    def halt(self) -> None:
        self._news.put(Stop(120.0))

    def later(self, seconds: float) -> None:
        self._clock.ahead += timedelta(seconds=seconds)

    def step(self) -> None:
        if self._run.memory.state not in TERMINAL:
            self._news.put(None)  # nobody waits
            self._run.step()

    def verdict(self) -> Verdict:
        attempt = self._run.memory.attempt
        assert attempt is not None
        assert attempt.outcome is not None
        state = self._run.memory.state.value
        reason = _timeless(attempt.reason)
        return Verdict(attempt.outcome.value, reason, attempt.error_code, attempt.exit_code, state)


def _timeless(reason: str) -> str:
    """The reason without its seconds: the two sides are judged one after the other, and the clock goes on."""
    return re.sub(r"\b(\d+m)?\d+s\b", "…", reason)


Ending = Callable[[Side], None]


def _all_succeed(side: Side) -> None:
    for rank in (0, 1):
        side.report(rank, 0)


def _both_fail(side: Side) -> None:
    side.report(1, 3, "exit code 3")
    side.later(1)
    side.report(0, 1, "exit code 1")


def _killed_and_reported(side: Side) -> None:
    side.report(0, 1, "exit code 1: the connection to a peer is closed")
    side.end(1, exit_code=-9, reason=KILLED)


def _first_fails(side: Side) -> None:
    side.report(0, 1, "exit code 1")
    side.step()


def _one_of_two_succeeds(side: Side) -> None:
    side.report(0, 0)
    side.report(1, 2, "exit code 2")


def _vanishes(side: Side) -> None:
    side.lose(1)
    for _ in range(4):
        side.later(20)
        side.step()


def _time_limit(side: Side) -> None:
    side.later(61)


ENDINGS: dict[str, tuple[Ending, dict[str, Any], str]] = {
    "all succeed": (_all_succeed, {}, "all learners exited"),
    "an exit code": (lambda side: side.report(1, 3, "exit code 3"), {}, "learner 2: exit code 3"),
    "a signal": (lambda side: side.report(0, 137, KILLED), {}, "learner 1 was killed by signal 9 (SIGKILL)"),
    "out of memory": (
        lambda side: side.report(0, 137, "killed by signal 9 (SIGKILL): out of memory"),
        {},
        "learner 1 was killed: out of memory (limit 1 GiB)",
    ),
    "the agent is killed for memory": (
        lambda side: side.end(1, exit_code=-9, reason=KILLED, oom=True),
        {},
        "learner 2 was killed: out of memory (limit 1 GiB)",
    ),
    "the first of two fails": (_first_fails, {}, "learner 1: exit code 1"),
    "one fails and one succeeds": (_one_of_two_succeeds, {}, "learner 2: exit code 2"),
    "both fail, the second one first": (_both_fail, {}, "learner 2: exit code 3"),
    "one is killed and the other reports": (_killed_and_reported, {}, "learner 2 was killed by signal 9 (SIGKILL)"),
    "an agent ends without a report": (
        lambda side: side.end(0, exit_code=1, reason="exit code 1"),
        {},
        "learner 1: its agent ended without a report: exit code 1",
    ),
    "an agent vanishes": (_vanishes, {}, "learner 2 vanished"),
    "the time limit": (_time_limit, {"max_runtime": 60}, "max_runtime of 1m exceeded"),
    "a halt": (lambda side: side.halt(), {}, "halted by request"),
    "storing is refused": (
        lambda side: side.report(0, 1, "S302 can't store results: the store answers 403"),
        {},
        "learner 1: can't store results: the store answers 403",
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_is_judged_alike(name: str, world: World, tmp_path: Path) -> None:
    ending, changes, reason = ENDINGS[name]
    service = Service(world, **changes)
    here = Here(FakeEngine(), tmp_path, world.context.settings.timings, **changes)
    verdicts = []
    for side in (service, here):
        ending(side)
        for _ in range(STEPS):
            side.step()
        verdicts.append(side.verdict())
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].reason.startswith(reason)


def test_a_launch_that_is_refused_is_judged_alike(world: World, tmp_path: Path) -> None:
    refusal = LaunchRefused("there is no image nothing:1", "S103")
    world.engine.refuses = refusal
    service = Service(world)
    here = Here(FakeEngine(refuses=refusal), tmp_path, world.context.settings.timings)
    for side in (service, here):
        for _ in range(STEPS):
            side.step()
    assert service.verdict() == here.verdict() == Verdict("FAILED", str(refusal), "S103", None, "FAILED")
