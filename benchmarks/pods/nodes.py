"""Nodes without kubelets: a process reports each pod that the scheduler binds to them as running, as kwok does
(https://kwok.sigs.k8s.io)."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from kubernetes import config

from weft_workers.engines.kubernetes import names

PODS_PER_NODE = 20
_CPUS, _GIB = 32, 128
_THREADS = 8
_MERGE = "application/merge-patch+json"
_BOUND = "spec.nodeName!=,status.phase=Pending"


class Number(Protocol):
    """A number that two processes share."""

    value: int

    def get_lock(self) -> Any: ...


class Server:
    """The API server, with bodies as bytes: nothing is encoded while it is measured."""

    def __init__(self, kubeconfig: Path) -> None:
        api = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._host, self._pool = api.configuration.host, api.rest_client.pool_manager

    def send(self, method: str, path: str, body: bytes | None = None, form: str = "application/json") -> bytes:
        """The body of the answer."""
        answer = self._pool.request(method, f"{self._host}/{path}", body=body, headers={"Content-Type": form})
        assert answer.status < 300, f"{method} {path}: {answer.data.decode()}"
        return bytes(answer.data)

    def follow(self, path: str) -> Iterator[dict[str, Any]]:
        """The events of a watch."""
        answer = self._pool.request("GET", f"{self._host}/{path}", preload_content=False, timeout=None)
        rest = b""
        for piece in answer.stream(amt=None):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (json.loads(line) for line in lines if line)


def add(server: Server, number: int, first: int = 0) -> None:
    """Make nodes, which are ready."""
    room = {"cpu": str(_CPUS), "memory": f"{_GIB}Gi", "ephemeral-storage": "1Ti", "pods": str(PODS_PER_NODE)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}
    status = json.dumps({"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}).encode()
    for count in range(first, number):
        node = {"metadata": {"name": f"pretended-{count}"}}
        server.send("POST", "api/v1/nodes", json.dumps(node).encode())
        server.send("PATCH", f"api/v1/nodes/pretended-{count}/status", status, _MERGE)


@contextmanager
def kubelet(kubeconfig: Path, namespace: str) -> Iterator[Number]:
    """A process that reports the namespace's pods as running; the number of pods that it has reported so far."""
    context = multiprocessing.get_context("spawn")
    running = context.Value("i", 0)
    process = context.Process(target=_report, args=(kubeconfig, namespace, running), daemon=True)
    process.start()
    try:
        yield running
    finally:
        process.kill()
        process.join()


def _report(kubeconfig: Path, namespace: str, running: Number) -> None:
    server, seen = Server(kubeconfig), set[str]()
    pods = f"api/v1/namespaces/{namespace}/pods"
    with ThreadPoolExecutor(_THREADS) as pool:
        while True:
            for event in server.follow(f"{pods}?watch=1&fieldSelector={_BOUND}&timeoutSeconds=3600"):
                pod = event["object"]
                if event["type"] in ("ADDED", "MODIFIED") and pod["metadata"]["uid"] not in seen:
                    seen.add(pod["metadata"]["uid"])
                    address = f"10.{len(seen) >> 16 & 255}.{len(seen) >> 8 & 255}.{len(seen) & 255}"
                    pool.submit(_start, server, f"{pods}/{pod['metadata']['name']}/status", address, running)


def _start(server: Server, path: str, address: str, running: Number) -> None:
    now = _now()
    learner = {
        "name": names.CONTAINER,
        "image": "python:3.11",
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
    }
    conditions = [{"type": name, "status": "True"} for name in ("Initialized", "Ready", "ContainersReady")]
    status = {
        "phase": "Running",
        "startTime": now,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": conditions,
        "containerStatuses": [learner],
    }
    server.send("PATCH", path, json.dumps({"status": status}).encode(), _MERGE)
    with running.get_lock():
        running.value += 1


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
