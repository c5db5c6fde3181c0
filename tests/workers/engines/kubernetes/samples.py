"""Specs, settings, and pods as servers show them: recorded from the test cluster, or made by hand."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec, Resources

Json = dict[str, Any]
MIB = 1 << 20
NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ENGINE, INSTALLATION = "kube", "ins-test"


def spec(**changes: Any) -> LaunchSpec:
    """A gang of two; ``changes`` are fields of the spec or of its resources."""
    resources: Json = {"cpus": 0.1, "gpus": 0, "memory": 64 * MIB}
    resources |= {name: changes.pop(name) for name in (*Resources.__dataclass_fields__,) if name in changes}
    fields: Json = {
        "run_name": "weft-job-1-1",
        "installation": INSTALLATION,
        "project_id": "prj-1",
        "job_id": "job-1",
        "attempt": 1,
        "learners": 2,
        "image": "python:3.11",
        "api_url": "http://10.1.2.3:8080",
        "token": "attempt-token",
        "project": "Vision & more",
        "job_name": "mnist",
        "grace": 30.0,
    }
    return LaunchSpec(resources=Resources(**resources), **{**fields, **changes})


def settings(**changes: Any) -> KubernetesSettings:
    return KubernetesSettings(**changes)


@cache
def _recorded() -> Json:
    found: Json = json.loads((Path(__file__).parent / "recorded.json").read_text())
    return found


def recorded(name: str) -> Json:
    """A pod of the test cluster."""
    pod: Json = copy.deepcopy(_recorded()[name]["pod"])
    return pod


def recorded_events(name: str) -> list[Json]:
    events: list[Json] = copy.deepcopy(_recorded()[name]["events"])
    return events


def at(seconds: float) -> str:
    """A moment before :data:`NOW`, as the server writes it."""
    return f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def pod(
    state: Json | None = None,
    *,
    phase: str = "Running",
    node: str | None = "node-1",
    conditions: tuple[Json, ...] = (),
    age: float = 100.0,
    deleted: tuple[float, float] | None = None,
    **status: Any,
) -> Json:
    """A pod by hand; ``deleted``: so many seconds ago, with so many of grace."""
    metadata: Json = {
        "name": "weft-job-1-1-1",
        "namespace": "learners",
        "uid": "uid-1",
        "resourceVersion": "7",
        "labels": {
            "weft.dev/run": "weft-job-1-1",
            "weft.dev/learner": "1",
            "weft.dev/installation": INSTALLATION,
            "weft.dev/engine": ENGINE,
        },
        "creationTimestamp": at(age),
    }
    if deleted:
        ago, grace = deleted
        metadata |= {"deletionTimestamp": at(ago - grace), "deletionGracePeriodSeconds": grace}
    amounts = {"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": "2"}
    found: Json = {
        "metadata": metadata,
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "learner", "image": "weft/python:3.11", "resources": {"requests": amounts, "limits": amounts}}
            ],
        },
        "status": {"phase": phase, "conditions": list(conditions), "startTime": at(age), **status},
    }
    if state is not None:
        found["status"]["containerStatuses"] = [{"name": "learner", "state": state}]
    return found


def running() -> Json:
    return {"running": {"startedAt": at(50)}}


def terminated(code: int, reason: str = "Error", ago: float = 10, message: str = "") -> Json:
    how = {"exitCode": code, "reason": reason, "finishedAt": at(ago)}
    return {"terminated": {**how, "message": message} if message else how}


def waiting(reason: str, message: str = "") -> Json:
    return {"waiting": {"reason": reason, "message": message}}


def condition(kind: str, status: str = "True", reason: str = "", message: str = "", ago: float = 20) -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(ago)}


def node(name: str = "node-1", ready: str = "True", ago: float = 20, **changes: Any) -> Json:
    """A node; ``ago``: seconds since it is as ready as it is."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "5",
            "labels": changes.get("labels", {}),
            "creationTimestamp": at(1e6),
        },
        "spec": {"taints": changes.get("taints", []), "unschedulable": changes.get("unschedulable", False)},
        "status": {
            "allocatable": changes.get("allocatable", {"cpu": "8", "memory": "32Gi", "pods": "110"}),
            "conditions": [condition("Ready", ready, ago=ago)],
        },
    }
