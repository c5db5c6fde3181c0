"""The start of many gangs: by Weft's engine, and the same requests without it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from benchmarks.pods.nodes import Number, Server
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec, Resources
from weft_workers.engines.kubernetes import names, objects
from weft_workers.engines.kubernetes.engine import KubernetesEngine

ENGINE = "kubernetes"
INSTALLATION = "bench"
GANG = 10
"""Learners of a job."""
_PROJECTS = 100
_THREADS = 4
"""Gangs that are started at once, on both sides."""
_PATIENCE = 900.0
_UID = "the-uid-of-the-owner"


@dataclass(frozen=True)
class Start:
    """Seconds from the first request."""

    created: float
    """Until the server has taken the last pod."""
    running: float
    """Until the last pod is reported as running."""


def gangs(pods: int) -> list[LaunchSpec]:
    """The attempts of ``pods / GANG`` jobs, as :func:`benchmarks.queue.filling.fill` names them."""
    some = LaunchSpec(
        run_name="",
        installation=INSTALLATION,
        project_id="",
        job_id="",
        attempt=1,
        learners=GANG,
        resources=Resources(cpus=1.0, gpus=0, memory=1 << 30),
        image="python:3.11",
        api_url="http://10.0.0.1:8080",
        token="a token of an attempt, as long as those of Weft",
        project="vision",
        job_name="resnet50",
    )
    return [
        replace(
            some,
            run_name=f"weft-open-{number}-1",
            job_id=f"open-{number}",
            project_id=f"prj-{number % _PROJECTS}",
        )
        for number in range(1, pods // GANG + 1)
    ]


def by_weft(engine: KubernetesEngine, specs: Sequence[LaunchSpec], running: Number) -> Start:
    engine.observe()  # as the engine of a worker that has been there for a while
    return _timed(engine.launch, specs, running)


def by_requests(server: Server, settings: KubernetesSettings, specs: Sequence[LaunchSpec], running: Number) -> Start:
    """Only the requests that create the same objects, encoded before: the API server's own time for them."""
    place = f"namespaces/{settings.namespace}"
    owner = {"metadata": {"name": "", "uid": _UID}}
    encoded: dict[str, tuple[bytes, bytes, list[bytes]]] = {}
    for spec in specs:
        owner["metadata"]["name"] = spec.run_name
        reached = objects.egress(settings, spec)
        bodies = [objects.pod(ENGINE, settings, "weft", spec, rank, owner) for rank in range(spec.learners)]
        encoded[spec.run_name] = (
            json.dumps(objects.secret(ENGINE, spec)).encode(),
            json.dumps(objects.policy(ENGINE, spec, owner, reached)).encode(),
            [json.dumps(body).encode() for body in bodies],
        )

    def start(spec: LaunchSpec) -> None:
        secret, policy, pods = encoded[spec.run_name]
        uid = json.loads(server.send("POST", f"api/v1/{place}/secrets", secret))["metadata"]["uid"].encode()
        server.send("POST", f"apis/networking.k8s.io/v1/{place}/networkpolicies", policy.replace(_UID.encode(), uid))
        for pod in pods:
            server.send("POST", f"api/v1/{place}/pods", pod.replace(_UID.encode(), uid))

    return _timed(start, specs, running)


def remove(server: Server, namespace: str, specs: Sequence[LaunchSpec]) -> None:
    """The objects of these gangs, at once."""
    own = names.selector(names.own_labels(ENGINE, INSTALLATION))

    def end(spec: LaunchSpec) -> None:
        place = f"namespaces/{namespace}"
        chosen = f"labelSelector={own},{names.RUN}={spec.run_name}"
        server.send("DELETE", f"api/v1/{place}/pods?gracePeriodSeconds=0&{chosen}")
        server.send("DELETE", f"apis/networking.k8s.io/v1/{place}/networkpolicies/{spec.run_name}")
        server.send("DELETE", f"api/v1/{place}/secrets/{spec.run_name}")

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(end, specs))


def _timed(start: Callable[[LaunchSpec], object], specs: Sequence[LaunchSpec], running: Number) -> Start:
    wanted, begun = running.value + sum(spec.learners for spec in specs), time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(start, specs))
    created = time.perf_counter() - begun
    while running.value < wanted:
        assert time.perf_counter() - begun < _PATIENCE, f"{wanted - running.value} pods do not start"
        time.sleep(0.01)
    return Start(created, time.perf_counter() - begun)
