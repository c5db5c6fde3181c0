"""Runs on a real Ray cluster, with real agents that talk to the API's double."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from tests.ray.cluster import RayCluster
from tests.trainer.agents import spec as learner_spec
from tests.trainer.api_double import ApiDouble

from weft_core.engine import EngineUnreachable, LearnerObservation, LearnerState, Observation
from weft_core.engine_settings import RaySettings
from weft_core.launch import LaunchSpec, Resources
from weft_workers.engines.ray import RayEngine

T = TypeVar("T")
INSTALLATION = "inst-test"
PATIENCE = 240.0
MIB = 1 << 20
FOREVER = "echo ready; sleep 600 & wait"
_counter = itertools.count(1)


def until(condition: Callable[[], T | None], what: Callable[[], object] = lambda: "", seconds: float = PATIENCE) -> T:
    """The first true answer; an engine that does not answer is asked again.

    The longer it takes, the more seldom it is asked: answering takes Ray's CPU time, too.
    """
    began = time.monotonic()
    while True:
        answer: Any
        try:
            if answer := condition():
                return answer
        except EngineUnreachable as error:
            answer = error
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds:g} s; last answer {answer!r}; {what()}"
        time.sleep(min(max(0.1, waited / 5), 1.0))


def processes_with(*words: str) -> list[int]:
    """Those that have all the words in their command line or environment."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with suppress(OSError):
            text = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            if pid != os.getpid() and all(word.encode() in text for word in words):
                found.append(pid)
    return found


@dataclass
class Run:
    bench: Bench
    spec: LaunchSpec
    api: ApiDouble

    @property
    def name(self) -> str:
        return self.spec.run_name

    def launch(self, engine: RayEngine | None = None) -> Run:
        (engine or self.bench.engine).launch(self.spec)
        return self

    def stop(self, grace: float = 0.0) -> None:
        self.bench.engine.stop(self.name, timedelta(seconds=grace))

    def observe(self) -> Observation | None:
        return self.bench.engine.observe().get(self.name)

    def learners(self) -> Mapping[int, LearnerObservation]:
        """As the engine sees them now. It must know the run."""
        seen = self.observe()
        assert seen is not None, self.describe()
        return seen.learners

    def wait(self, is_so: Callable[[Observation], object], seconds: float = PATIENCE) -> Observation:
        """The first observation of it that ``is_so``."""
        return until(lambda: seen if (seen := self.observe()) and is_so(seen) else None, self.describe, seconds)

    def started(self) -> Run:
        """Wait until all its commands run, and the engine says so."""
        self.wait(lambda seen: all(learner.state is LearnerState.RUNNING for learner in seen.learners.values()))
        until(lambda: all(self.api.learners[rank].lines for rank in self.api.specs), self.describe)
        return self

    def ended(self) -> dict[int, LearnerObservation]:
        return dict(self.wait(lambda seen: seen.learners and seen.gone).learners)

    def forgotten(self) -> None:
        """Wait until the engine does not know it any more, and nothing of it is left."""
        until(lambda: self.observe() is None, self.describe)
        self.left_nothing()
        assert self.name not in self.bench.cluster.jobs()

    def left_nothing(self) -> None:
        """Wait until no process of it is left."""
        until(lambda: not self.processes(), self.describe)

    def processes(self) -> list[int]:
        """Agents and all that they have started."""
        return processes_with(self.api.url)

    def describe(self) -> str:
        said = {rank: (learner.phase, learner.lines[-3:], learner.exit) for rank, learner in self.api.learners.items()}
        try:
            job: object = self.bench.cluster.jobs().get(self.name)
        except OSError as error:
            job = error
        return f"{self.name}: job {job}; agents {said}; processes {self.processes()}"


class Bench:
    """An engine on a cluster; all its runs are stopped at the end."""

    def __init__(self, cluster: RayCluster, **settings: Any) -> None:
        self.cluster = cluster
        self._settings = settings
        self._stack = ExitStack()
        self.engine = self.new_engine()
        self.runs: list[Run] = []

    def new_engine(self, name: str = "ray", installation: str = INSTALLATION, **settings: Any) -> RayEngine:
        """An engine as another worker would have it."""
        mine = {"address": self.cluster.address, "token": self.cluster.token, "timeout": 30.0, **self._settings}
        return RayEngine(name, RaySettings.model_validate(mine | settings), installation)

    def run(
        self,
        command: str = FOREVER,
        *,
        learners: int = 1,
        cpus: float = 0.25,
        extra: dict[str, float] | None = None,
        image: str = "python:3.11",
        memory: int = 64 * MIB,
    ) -> Run:
        """A run that is not launched yet."""
        specs = {
            rank: learner_spec(command, rank=rank, learners=learners, cpus=cpus, heartbeat_seconds=1)
            for rank in range(learners)
        }
        token = f"weft_a_{secrets.token_hex(16)}"
        api = self._stack.enter_context(ApiDouble(specs, token=token).serving())
        job = f"job-{secrets.token_hex(4)}{next(_counter)}"
        spec = LaunchSpec(
            run_name=f"weft-{job}-1",
            installation=INSTALLATION,
            project_id="prj-1",
            job_id=job,
            attempt=1,
            learners=learners,
            resources=Resources(cpus=cpus, gpus=0, memory=memory, extra=extra or {}),
            image=image,
            api_url=api.url,
            token=token,
            project="tests",
            job_name="a test",
            grace=20.0,
        )
        run = Run(self, spec, api)
        self.runs.append(run)
        return run

    def close(self) -> None:
        for run in self.runs:
            with suppress(EngineUnreachable):
                run.stop()
        for run in self.runs:
            run.left_nothing()
        self._stack.close()
