"""Engines in the API's form."""

from __future__ import annotations

from typing import Any

GIB = 1 << 30


def _amounts(cpus: float = 0, gpus: int = 0, memory: int = 0) -> dict[str, float]:
    return {"cpus": cpus, "gpus": gpus, "memory": memory}


LOCAL: dict[str, Any] = {
    "name": "local",
    "type": "local",
    "default": True,
    "health": "up",
    "condition": None,
    "capacity": _amounts(8, 0, GIB),
    "used": _amounts(2, 0, GIB // 2),
    "busy": _amounts(),
    "free": _amounts(6, 0, GIB // 2),
    "queue": "",
    "node_counts": {"ready": 1, "not_ready": 0, "potential": 0},
    "seen_at": "2026-01-31T08:00:00Z",
    "unreachable_since": None,
    "error": None,
    "queued": 3,
    "running": 4,
}
CLUSTER: dict[str, Any] = LOCAL | {
    "name": "gpu",
    "type": "kubernetes",
    "default": False,
    "capacity": _amounts(192, 16, 1536 * GIB),
    "used": _amounts(48, 7, 250 * GIB),
    "busy": _amounts(3.2, 0, 10 * GIB),
    "free": _amounts(140.8, 9, 1276 * GIB),
    "queue": "Kueue's queue a",
    "node_counts": {"ready": 1, "not_ready": 1, "potential": 1},
    "queued": 31,
    "running": 2,
}
AWAY: dict[str, Any] = LOCAL | {
    "name": "ray",
    "type": "ray",
    "default": False,
    "health": "unreachable",
    "condition": "no answer since 2026-01-31 08:15:02 UTC: HTTP 401 from http://ray.example: the token is wrong",
    "capacity": None,
    "used": _amounts(),
    "busy": None,
    "free": None,
    "unreachable_since": "2026-01-31T08:15:02Z",
    "error": "HTTP 401 from http://ray.example: the token is wrong",
    "queued": 1,
    "running": 0,
}


def _node(name: str, state: str, used: dict[str, float], busy: dict[str, float]) -> dict[str, Any]:
    whole = _amounts(96, 8, 768 * GIB)
    return {
        "name": name, "state": state, "gpu_type": "NVIDIA-[A100]", "capacity": whole, "used": used, "busy": busy,
        "extra": {}, "taints": ["nvidia.com/gpu"],
    }  # fmt: skip


CLUSTER_NODES = [
    _node("n1", "ready", _amounts(48, 7, 250 * GIB), _amounts(3.2, 0, 10 * GIB)),
    _node("n2", "not ready", _amounts(), _amounts()),
    _node("gpu-0-0", "potential", _amounts(), _amounts()),
]
_ASKED = {"learners": 2, "resources": {"cpus": 8, "gpus": 4, "memory": 64 * GIB}, "priority": 50}
QUEUE: dict[str, Any] = {
    "nodes": CLUSTER_NODES,
    "waiting": [
        _ASKED
        | {"id": "job-1", "name": "held", "state": "PENDING", "place": None, "condition": None}
        | {"reason": "waits in Kueue's queue a: [quota]", "state_since": "2026-01-31T08:15:02Z"},
        _ASKED
        | {"id": "job-2", "name": "mnist", "state": "QUEUED", "place": 7, "reason": "queued behind 6 jobs"}
        | {"condition": "Unreachable since 2026-01-31", "state_since": "2026-01-31T08:15:02Z"},
    ],
    "waiting_of_others": 29,
}
