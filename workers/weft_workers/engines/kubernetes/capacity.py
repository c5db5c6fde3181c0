"""The capacity of the cluster, computed from its nodes and pods. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft_core.engine import Amounts, Capacity, Node, Taint
from weft_core.engine_settings import KubernetesSettings, NodePool
from weft_workers.engines.kubernetes import quantity

Json = dict[str, Any]

_KEEPS_OFF = ("NoSchedule", "NoExecute")
_NOT_OURS = ("cpu", "memory", "pods", "ephemeral-storage")
_TRANSIENT = "node.kubernetes.io/"
"""Taints that describe the state of a node, not its purpose. ``Node.ready`` covers them."""
_RESIDENTS = ("DaemonSet", "Node")
"""Owners of pods that a node always has. Their requests reduce its size, because a node is never without them."""
_LIKE = 0.25
"""A node belongs to a pool without labels if its size differs by no more: some of it is the system's."""


def trim_node(node: Json) -> Json:
    """The part of a node that this module and :mod:`network` need."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return {
        "metadata": {
            name: metadata.get(name) for name in ("name", "uid", "resourceVersion", "labels", "creationTimestamp")
        },
        "spec": {
            "taints": spec.get("taints") or [],
            "unschedulable": bool(spec.get("unschedulable")),
            "podCIDRs": spec.get("podCIDRs") or [],
        },
        "status": {
            "allocatable": status.get("allocatable") or {},
            "addresses": status.get("addresses") or [],
            "conditions": [condition for condition in status.get("conditions") or [] if condition["type"] == "Ready"],
        },
    }


def trim_pod(pod: Json) -> Json:
    """The part of any pod that this module needs: its node, its requests, and its owner."""
    metadata = pod["metadata"]
    return {
        "metadata": {name: metadata.get(name) for name in ("uid", "resourceVersion", "labels")},
        "node": pod["spec"].get("nodeName") or "",
        "requests": requests(pod["spec"]),
        "resident": any(owner["kind"] in _RESIDENTS for owner in metadata.get("ownerReferences") or []),
    }


def requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """The resources that a pod reserves: those of its containers, or of an init container that asks more; and its
    overhead."""
    total: dict[str, float] = defaultdict(float)
    for container in spec.get("containers") or []:
        _add(total, _asked(container))
    sidecars: dict[str, float] = defaultdict(float)
    peak: dict[str, float] = {}
    for container in spec.get("initContainers") or []:
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":  # a sidecar stays
            _add(sidecars, asked)
            asked = {}
        for name in {*asked, *sidecars}:
            peak[name] = max(peak.get(name, 0.0), asked.get(name, 0.0) + sidecars.get(name, 0.0))
    _add(total, sidecars)
    for name, number in peak.items():
        total[name] = max(total[name], number)
    total |= _numbers((spec.get("resources") or {}).get("requests"))  # of the pod as a whole
    _add(total, _numbers(spec.get("overhead")))
    return dict(total)


def capacity(
    engine: str, settings: KubernetesSettings, nodes: Iterable[Json], pods: Iterable[Json], own: Mapping[str, str]
) -> Capacity:
    """The capacity for admission.

    Args:
        nodes: trimmed by :func:`trim_node`.
        pods: everybody's that have not ended, trimmed by :func:`trim_pod`.
        own: labels of this engine's learners, which admission itself counts.
    """
    busy: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    residents: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for pod in pods:
        if pod["node"] and not own.items() <= (pod["metadata"]["labels"] or {}).items():
            _add((residents if pod["resident"] else busy)[pod["node"]], pod["requests"])
    names = [(node, node["metadata"]["name"]) for node in nodes]
    found = [_node(settings, node, busy.get(name, {}), residents.get(name, {})) for node, name in names]
    found = [node for node in found if settings.node_selector.items() <= node.labels.items()]
    found.sort(key=lambda node: node.name)
    return Capacity(
        nodes=(*found, *_potential(engine, settings, found)),
        queue=f"Kueue's queue {settings.queue}" if settings.queue else "",
        grows=True,
        shared_network="" if settings.network_policies else "its setting network_policies is false",
    )


def _node(settings: KubernetesSettings, node: Json, used: Mapping[str, float], residents: Mapping[str, float]) -> Node:
    metadata, spec = node["metadata"], node["spec"]
    labels = metadata["labels"] or {}
    allocatable = _numbers(node["status"]["allocatable"])
    there = {name: max(0.0, round(number - residents.get(name, 0.0), 6)) for name, number in allocatable.items()}
    taints = [Taint(taint["key"], taint.get("value") or "", taint["effect"]) for taint in spec["taints"]]
    return Node(
        name=metadata["name"],
        cpus=there.get("cpu", 0.0),
        gpus=int(there.get(settings.gpu_resource, 0)),
        memory=int(there.get("memory", 0)),
        gpu_type=labels.get(settings.gpu_type_label),
        extra=_extra(settings, there),
        busy=Amounts(
            cpus=round(used.get("cpu", 0.0), 6),
            gpus=int(used.get(settings.gpu_resource, 0)),
            memory=int(used.get("memory", 0)),
            extra={name: number for name, number in _extra(settings, used).items() if number},
        ),
        labels=labels,
        taints=tuple(taint for taint in taints if _keeps_off(taint) and not taint.tolerated(settings.tolerations)),
        ready=is_ready(node) and not spec["unschedulable"] and not any(_passes(taint) for taint in taints),
    )


def _keeps_off(taint: Taint) -> bool:
    return taint.effect in _KEEPS_OFF and not taint.key.startswith(_TRANSIENT)


def _passes(taint: Taint) -> bool:
    """Whether a taint says that the node takes no pods just now: under pressure, not reachable, shutting down."""
    return taint.effect in _KEEPS_OFF and taint.key.startswith(_TRANSIENT)


def is_ready(node: Mapping[str, Any]) -> bool:
    return any(condition["status"] == "True" for condition in node["status"]["conditions"])


def _extra(settings: KubernetesSettings, amounts: Mapping[str, float]) -> dict[str, float]:
    """Extended resources by their own names."""
    named = (*_NOT_OURS, settings.gpu_resource)
    return {name: number for name, number in amounts.items() if name not in named and not name.startswith("hugepages-")}


# --- nodes that an autoscaler would add --------------------------------------------------------------------------


def _potential(engine: str, settings: KubernetesSettings, nodes: Sequence[Node]) -> list[Node]:
    """The nodes by which the pools may still grow: their largest sizes, less the nodes that exist already."""
    left = list(nodes)
    found = []
    for index, pool in enumerate(settings.autoscaling):
        there = [node for node in left if _is_of(node, pool)]
        left = [node for node in left if node not in there]
        found += [
            Node(
                name=f"{engine}-{index}-{number}",
                cpus=pool.cpus,
                gpus=pool.gpus,
                memory=pool.memory,
                gpu_type=pool.gpu_type,
                extra=pool.extra,
                labels={**settings.node_selector, **pool.labels},
                potential=True,
            )
            for number in range(len(there), pool.max)
        ]
    return found


def _is_of(node: Node, pool: NodePool) -> bool:
    """Whether a node belongs to a pool: by its labels, or where the pool has none, by its size."""
    if pool.labels:
        return pool.labels.items() <= node.labels.items()
    return node.gpus == pool.gpus and all(
        abs(there - nominal) <= _LIKE * nominal
        for there, nominal in ((node.cpus, pool.cpus), (node.memory, float(pool.memory)))
    )


# --- numbers -----------------------------------------------------------------------------------------------------


def _asked(container: Mapping[str, Any]) -> dict[str, float]:
    return _numbers((container.get("resources") or {}).get("requests"))


def _numbers(quantities: Mapping[str, Any] | None) -> dict[str, float]:
    return {name: quantity.number(value) for name, value in (quantities or {}).items()}


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, number in more.items():
        total[name] = total.get(name, 0.0) + number
