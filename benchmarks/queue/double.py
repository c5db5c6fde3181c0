"""An engine that answers like a cluster in which everything runs, and starts what it is asked to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import cast

import redis

from benchmarks.queue.filling import GIB, SLOTS
from weft_core.engine import Capacity, LearnerObservation, LearnerState, Node, Observation
from weft_core.launch import LaunchSpec


class Double:
    """Has room for as many jobs as run, and for ``spare`` more.

    Args:
        opened: jobs that run, as :func:`benchmarks.queue.filling.fill` places them.
    """

    grows_runs = False

    def __init__(self, opened: int, spare: int) -> None:
        self.name = "local"
        nodes = -(-(opened + 1) // SLOTS)
        names = [f"node-{number}" for number in range(nodes)]
        taken = [
            sum(1 for _ in range(max(1, number * SLOTS), min(opened + 1, (number + 1) * SLOTS)))
            for number in range(nodes)
        ]
        rooms = [Node(name, float(jobs), 0, jobs * GIB) for name, jobs in zip(names, taken, strict=True)]
        rooms.append(Node("spare", float(spare), 0, spare * GIB))
        self._capacity = Capacity(tuple(rooms), queue="", grows=True)
        self._runs = {
            f"weft-open-{number}-1": self._run(f"weft-open-{number}-1", f"node-{number // SLOTS}")
            for number in range(1, opened + 1)
        }

    @staticmethod
    def _run(name: str, node: str) -> Observation:
        return Observation(name, {0: LearnerObservation(0, LearnerState.RUNNING, node=node)})

    def launch(self, spec: LaunchSpec) -> None:
        self._runs.setdefault(spec.run_name, self._run(spec.run_name, "spare"))

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        raise NotImplementedError

    def observe(self) -> Mapping[str, Observation]:
        return self._runs

    def stop(self, run_name: str, grace: timedelta) -> None:
        self._runs.pop(run_name, None)

    def capacity(self) -> Capacity:
        return self._capacity


class SharedDouble(Double):
    """The same for several workers: what one of them has started, all of them find.

    Args:
        spare: the jobs for which it has room.
        url: of a Redis, which holds the names of the runs.
    """

    def __init__(self, spare: int, url: str) -> None:
        super().__init__(0, spare)
        self._redis = redis.Redis.from_url(url)

    def launch(self, spec: LaunchSpec) -> None:
        self._redis.sadd("runs", spec.run_name)

    def observe(self) -> Mapping[str, Observation]:
        names = cast("set[bytes]", self._redis.smembers("runs"))
        return {name.decode(): self._run(name.decode(), "spare") for name in names}

    def stop(self, run_name: str, grace: timedelta) -> None:
        self._redis.srem("runs", run_name)
