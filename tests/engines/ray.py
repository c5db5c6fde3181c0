"""The Ray engine on a real Ray cluster of this machine: learners are actors, and a proxy is before the dashboard."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr
from tests.engines.bench import MIB, OURS, Ability, Bench
from tests.engines.proxy import Proxy
from tests.ray.cluster import RayCluster

from weft_core.engine import Capacity, Engine
from weft_core.engine_settings import RaySettings
from weft_core.launch import Resources
from weft_workers.engines.ray import RayEngine

if TYPE_CHECKING:
    from pathlib import Path

_SLOT = "slot"


class RayBench(Bench):
    kind = "ray"
    image = "ray:2.60.0"
    lacks: Mapping[Ability, str] = {
        "memory limit": "Ray counts an actor's memory and does not limit it; its monitor looks at the whole node"
    }

    proxy: Proxy

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self.proxy = Proxy(cluster.address)

    def engine(self, installation: str = OURS, timeout: float = 20.0) -> Engine:
        settings = RaySettings(
            address=self.proxy.url,
            token=SecretStr(self._cluster.token),
            environments={self.no_image: f"/nowhere/{self.no_image}/bin/python"},
            timeout=timeout,
        )
        return RayEngine("ray", settings, installation)

    def things(self, *run_names: str) -> list[str]:
        jobs = [f"job {name}" for name, job in self._cluster.jobs().items() if job["metadata"]]
        there = [*jobs, *self._living("actors", "DEAD"), *self._living("placement_groups", "REMOVED")]
        return [thing for thing in there if any(run_name in thing for run_name in run_names)]

    def _living(self, kind: str, dead: str) -> list[str]:
        found = self._cluster.get(f"/api/v0/{kind}?detail=1&limit=10000")["data"]["result"]["result"]
        return [f"{kind} {state['name']}" for state in found if state["state"] != dead]

    def remove_learner(self, run_name: str, rank: int) -> None:
        """The process of its actor is killed; that of a lone learner is Ray's own."""
        actors = self._cluster.actors(run_name) or {0: self._cluster.supervisors(run_name)[run_name]}
        os.kill(actors[rank]["pid"], signal.SIGKILL)

    def late(self) -> Mapping[str, Any]:
        """No node has so much."""
        return {"resources": Resources(cpus=64, gpus=0, memory=self.each.memory)}

    def scarce(self) -> Resources:
        return Resources(self.each.cpus, 0, self.each.memory, extra={_SLOT: 1})

    def scarce_use(self, capacity: Capacity) -> float:
        return sum(node.busy.extra.get(_SLOT, 0.0) for node in capacity.nodes)


@contextmanager
def opened(_: Path) -> Iterator[Bench]:
    with RayCluster(cpus=4, memory=16 * 1024 * MIB, resources={_SLOT: 1}) as cluster:
        bench = RayBench(cluster)
        yield bench
        bench.proxy.close()
