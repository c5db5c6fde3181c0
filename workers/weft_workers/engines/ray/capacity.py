"""The capacity of a Ray cluster, and the part of it that others than our learners use."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft_core.engine import Amounts, Capacity, Node
from weft_core.engine_settings import RaySettings
from weft_workers.engines.ray.client import RayClient
from weft_workers.engines.ray.reading import Run, reserved

_LAG = 15.0
"""Seconds by which Ray's account of the usage may be late: room that a learner of ours has just left is not used by
others."""
_BUILT_IN = ("CPU", "GPU", "memory", "object_store_memory")
_EXPOSED = "Ray runs the learners of all jobs as one user, in one network"
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Census:
    """Counts the nodes of a cluster."""

    def __init__(self, name: str, settings: RaySettings, ray: RayClient) -> None:
        self._name = name
        self._settings = settings
        self._ray = ray
        self._held: dict[tuple[str, int], tuple[str, dict[str, float], float]] = {}
        """Run and rank → node's id, what it reserves, when it was last seen."""

    def note(self, runs: Iterable[Run]) -> None:
        """Remember where our learners are."""
        now = time.monotonic()
        for run in runs:
            for rank, learner in enumerate(run.learners):
                if (node := learner.get("node_id")) and not (run.terminal and (run.name, rank) in self._held):
                    self._held[run.name, rank] = (str(node), reserved(run), now)
        self._held = {key: seen for key, seen in list(self._held.items()) if now - seen[2] < _LAG}

    def take(self, runs: Sequence[Run]) -> Capacity:
        """Raises EngineUnreachable."""
        there = self._ray.nodes()
        used = self._used()
        ours = self._ours()
        names = node_names(there)
        nodes = [_node(node, names, used.get(node["node_id"], {}), ours.get(node["node_id"], {})) for node in there]
        return Capacity((*nodes, *self._potential(there)), grows=True, exposed=_EXPOSED)

    def gpu_name(self, wanted: str) -> str:
        """The cluster's name of a type of GPU, found as the driver of a gang does it (weft_trainer.ray_gang.driver)."""
        there = [_gpu_type(_totals(node)) for node in self._ray.nodes()]
        pools = [pool.gpu_type for pool in self._settings.autoscaling]
        return next((name for name in (*there, *pools) if name and _plain(wanted) in _plain(name)), wanted)

    def _ours(self) -> dict[str, Counter[str]]:
        sums: dict[str, Counter[str]] = {}
        for node, held, _ in list(self._held.values()):
            sums.setdefault(node, Counter()).update({_plain(name): amount for name, amount in held.items()})
        return sums

    def _used(self) -> dict[str, dict[str, float]]:
        """Node id → resource → amount in use, of everybody. Names are plain ones, as Ray's dashboard bends them."""
        report = self._ray.cluster_status().get("clusterStatus") or {}
        by_node = (report.get("loadMetricsReport") or {}).get("usageByNode")
        if by_node:
            return {
                str(node): {_plain(name): float(amounts[0]) for name, amounts in usage.items()}
                for node, usage in by_node.items()
            }
        # Autoscaler V2 does not write that report.
        return {str(node): parse_usage(str(text)) for node, text in self._ray.logical_resources().items()}

    def _potential(self, there: Sequence[Mapping[str, Any]]) -> list[Node]:
        """Nodes of the pools that are not there yet."""
        unclaimed = [_totals(node) for node in there if not node.get("is_head_node")]
        nodes = []
        for index, pool in enumerate(self._settings.autoscaling):
            alike = [totals for totals in unclaimed if _is_of(totals, pool.cpus, pool.gpus, pool.gpu_type, pool.extra)]
            for totals in alike[: pool.max]:
                unclaimed.remove(totals)
            nodes += [
                Node(
                    f"{self._name}-{index}-{n}",
                    pool.cpus,
                    pool.gpus,
                    pool.memory,
                    pool.gpu_type,
                    pool.extra,
                    labels=pool.labels,
                    potential=True,
                )
                for n in range(min(len(alike), pool.max), pool.max)
            ]
        return nodes


def _node(
    said: Mapping[str, Any], names: Mapping[str, str], used: Mapping[str, float], ours: Mapping[str, float]
) -> Node:
    total = _totals(said)

    def busy(name: str) -> float:
        return max(0.0, used.get(_plain(name), 0.0) - ours.get(_plain(name), 0.0))

    extra = {
        name: amount
        for name, amount in total.items()
        if name not in _BUILT_IN and not name.startswith(("node:", "accelerator_type:"))
    }
    return Node(
        names[said["node_id"]],
        total.get("CPU", 0.0),
        int(total.get("GPU", 0)),
        int(total.get("memory", 0)),
        _gpu_type(total),
        extra,
        Amounts(
            busy("CPU"), round(busy("GPU")), int(busy("memory")), {name: busy(name) for name in extra if busy(name)}
        ),
        labels={str(key): str(value) for key, value in (said.get("labels") or {}).items()},
    )


def _totals(node: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(amount) for name, amount in (node.get("resources_total") or {}).items()}


def _gpu_type(total: Mapping[str, float]) -> str | None:
    return next((name.partition(":")[2] for name in total if name.startswith("accelerator_type:")), None)


def _is_of(
    total: Mapping[str, float], cpus: float, gpus: int, gpu_type: str | None, extra: Mapping[str, float]
) -> bool:
    """Whether a node looks like one of a pool."""
    return (
        total.get("CPU", 0.0) == cpus
        and total.get("GPU", 0.0) == gpus
        and (gpu_type is None or _plain(gpu_type) in _plain(_gpu_type(total) or ""))
        and all(total.get(name, 0.0) >= amount for name, amount in extra.items())
    )


def node_names(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Names for people, by node id; the driver calls them the same (weft_trainer.ray_gang.driver)."""
    shown = {str(node["node_id"]): str(node.get("node_name") or node.get("node_ip")) for node in nodes}
    names = list(shown.values())
    return {key: name if names.count(name) == 1 else f"{name}-{key[-6:]}" for key, name in shown.items()}


def parse_usage(text: str) -> dict[str, float]:
    """'1.5/2.0 CPU (1.5 used of 2.0 reserved in placement groups)' a line → plain name → amount in use."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*([\d.]+)([KMGT]?i?B)?/\S+ (\S+)", line)
        if match:
            found[_plain(match[3])] = float(match[1]) * _UNITS.get(match[2] or "B", 1)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
