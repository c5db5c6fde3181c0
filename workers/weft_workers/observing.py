"""An engine as the reconciler sees it: observations are shared by the jobs of a process for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from weft_core.engine import Capacity, Engine, EngineUnreachable, Observation, Preparation, Prepares
from weft_core.failpoints import around
from weft_core.launch import LaunchSpec

T = TypeVar("T")


@dataclass(frozen=True)
class Ages:
    """How old (seconds) an engine's answers may be."""

    runs: float = 1.0
    capacity: float = 3.0
    """As often as the first job of a queue checks for room that others have left."""
    silence: float = 2.0
    """One engine that does not answer must not cost each of its jobs a time-out."""


@dataclass(frozen=True)
class Seen(Generic[T]):
    """An answer, and when (``time.monotonic``) the engine was asked: it says nothing about later changes."""

    answer: T
    at: float

    @property
    def age(self) -> float:
        """Seconds since the request."""
        return time.monotonic() - self.at


class Remembered(Generic[T]):
    """A request to an engine that is made once for all threads that need it at the same time."""

    def __init__(self, ask: Callable[[], T], ages: Ages) -> None:
        self._ask, self._ages = ask, ages
        self._lock = threading.Lock()
        self._seen: Seen[T] | None = None
        self._failed: Seen[str] | None = None

    def get(self, max_age: float) -> Seen[T]:
        """The answer to a request made at most ``max_age`` seconds ago (0: after this call began).

        Raises:
            EngineUnreachable: it does not answer, or did not a moment ago.
        """
        wanted = time.monotonic() - max_age
        with self._lock:
            if self._seen is not None and self._seen.at >= wanted:
                return self._seen
            if self._failed is not None and self._failed.age < self._ages.silence:
                raise EngineUnreachable(self._failed.answer)
            at = time.monotonic()
            try:
                self._seen = Seen(self._ask(), at)
            except EngineUnreachable as error:
                self._failed = Seen(str(error), time.monotonic())
                raise
            self._failed = None
            return self._seen


class ObservedEngine:
    """An engine with remembered answers."""

    def __init__(self, engine: Engine, kind: str, ages: Ages | None = None) -> None:
        self.name, self.kind = engine.name, kind
        self._engine, self._ages = engine, ages or Ages()
        self._runs: Remembered[Mapping[str, Observation]] = Remembered(engine.observe, self._ages)
        self._capacity = Remembered(engine.capacity, self._ages)

    @around("engine.observe")
    def observe(self, fresh: bool) -> Seen[Mapping[str, Observation]]:
        """Every run; ``fresh``: asked after this call began. Raises EngineUnreachable."""
        return self._runs.get(0.0 if fresh else self._ages.runs)

    @around("engine.runs")
    def runs(self, max_age: float) -> Mapping[str, Observation]:
        """Every run as of at most ``max_age`` seconds ago. Raises EngineUnreachable."""
        return self._runs.get(max_age).answer

    @around("engine.capacity")
    def capacity(self, fresh: bool = False) -> Capacity:
        """The engine's capacity. Raises EngineUnreachable."""
        return self._capacity.get(0.0 if fresh else self._ages.capacity).answer

    @property
    def prepares(self) -> bool:
        """Whether jobs may have to wait until their image is made."""
        return isinstance(self._engine, Prepares)

    @around("engine.prepare")
    def prepare(self, jobs: Mapping[str, str]) -> Mapping[str, Preparation]:
        """Make the images of waiting jobs: see :class:`weft_core.engine.Prepares`. Raises EngineUnreachable."""
        return self._engine.prepare(jobs) if isinstance(self._engine, Prepares) else {}

    @around("engine.launch")
    def launch(self, spec: LaunchSpec) -> None:
        self._engine.launch(spec)

    @property
    def grows_runs(self) -> bool:
        """Whether learners can be added to a run."""
        return self._engine.grows_runs

    @around("engine.grow")
    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        self._engine.grow(spec, ranks)

    @around("engine.stop")
    def stop(self, run_name: str, grace: timedelta) -> None:
        self._engine.stop(run_name, grace)
