"""Runs, put together from their Secrets and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from weft_core.engine import Observation
from weft_workers.engines.kubernetes import explain, names

Json = dict[str, Any]


_STATUS = (
    "phase",
    "reason",
    "message",
    "startTime",
    "conditions",
    "containerStatuses",
    "initContainerStatuses",
)


def trim_pod(pod: Json) -> Json:
    """The part of a learner's pod that this module needs."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences", "creationTimestamp")
    return {
        "metadata": {
            name: metadata[name]
            for name in (*kept, "deletionTimestamp", "deletionGracePeriodSeconds")
            if metadata.get(name) is not None
        },
        "spec": {
            "nodeName": spec.get("nodeName"),
            "schedulingGates": spec.get("schedulingGates") or [],
            "containers": [
                {name: container.get(name) for name in ("name", "image", "resources")}
                for container in spec["containers"]
            ],
        },
        "status": {name: status[name] for name in _STATUS if name in status},
    }


def trim_secret(secret: Json) -> Json:
    """The part of an attempt's Secret that this module needs, without its content."""
    metadata = secret["metadata"]
    return {"metadata": {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion", "labels")}}


def observe(
    secrets: Iterable[Json],
    pods: Iterable[Json],
    deleted: Iterable[Json],
    nodes: Mapping[str, Json],
    now: datetime,
    event: Callable[[Json], str],
    held: Callable[[Json], str],
) -> dict[str, Observation]:
    """Every run.

    Args:
        deleted: the last versions of pods that are gone although their run was not stopped.
        event: what a pod's events say.
        held: why Kueue holds a pod back.
    """
    owned = {names.label(secret, names.RUN) for secret in secrets}  # a stop takes the Secret away
    runs: dict[str, dict[int, tuple[Json, bool]]] = {name: {} for name in owned}
    for pod, is_deleted in (*((pod, True) for pod in deleted), *((pod, False) for pod in pods)):
        rank, run = names.rank_of(pod), names.label(pod, names.RUN)
        if rank is None or not run or (is_deleted and run not in owned):
            continue
        there = runs.setdefault(run, {})
        if rank not in there or _rather(pod, is_deleted, *there[rank]):
            there[rank] = pod, is_deleted
    return {name: _run(name, found, nodes, now, event, held, name not in owned) for name, found in runs.items() if name}


def _rather(pod: Json, is_deleted: bool, other: Json, other_is_deleted: bool) -> bool:
    """Whether ``pod`` rather than ``other`` is the learner: an existing pod, then a living pod, then the newer pod."""
    return _weight(pod, is_deleted) > _weight(other, other_is_deleted)


def _weight(pod: Json, is_deleted: bool) -> tuple[bool, bool, str]:
    return not is_deleted, not explain.is_over(pod), pod["metadata"].get("creationTimestamp") or ""


def _run(
    name: str,
    found: Mapping[int, tuple[Json, bool]],
    nodes: Mapping[str, Json],
    now: datetime,
    event: Callable[[Json], str],
    held: Callable[[Json], str],
    stopped: bool,
) -> Observation:
    learners, failed, waits = {}, None, ""
    for rank, (pod, is_deleted) in sorted(found.items()):
        told = "" if is_deleted else event(pod)
        learners[rank] = explain.learner(pod, rank, nodes, now, told, deleted=is_deleted, stopped=stopped)
        failed = failed or (None if stopped else explain.failure(pod, told, now))
        waits = waits or (held(pod) if explain.is_held(pod) and not is_deleted else "")
    text, code = failed or ("", None)
    return Observation(name, learners, held=waits, failed=text, failed_code=code)
