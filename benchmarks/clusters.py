"""What Weft costs on a cluster: the start of a job, and 50 jobs of one second, through Weft and directly, in turns on
the same cluster. Both sides do the same work under the same limit: as many at once as the cluster has CPUs for."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.e2e.stack import Stack, lines, manifest, running
from tests.kubernetes import images
from tests.kubernetes.cluster import MISSING, Cluster, find_cluster
from tests.kubernetes.stack import ENGINE, kube_stack
from tests.ray.cluster import RayCluster

from benchmarks.table import median, show, spread
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec, Resources
from weft_core.settings import TimingSettings
from weft_workers.engines.kubernetes import objects

JOBS, GOAL = 50, 1.15
ROUNDS, STARTS = 3, 5
CPUS, MEMORY = 1.0, 256 << 20
SLEEP = "import time; time.sleep(1)"
SAY = "import time; print(time.time(), flush=True)"
SETTLE = 15.0
"""Seconds before each measurement, in which a cluster notices that earlier programs have ended: Ray's account of
what is used is several seconds late."""
_POLL = 0.2
_PATIENCE = 900.0


@dataclass(frozen=True)
class Side:
    """One way to run jobs on the cluster."""

    name: str
    start: Callable[[], float]
    """Seconds from submit to the first line of user code."""
    many: Callable[[int], float]
    """Seconds from the first submit of so many jobs of a second until all have ended."""


def compare(title: str, sides: Sequence[Side], goal: float | None) -> None:
    """Measure in turns, and print; the first side is what the others are compared with."""
    starts: dict[str, list[float]] = {side.name: [] for side in sides}
    wholes: dict[str, list[float]] = {side.name: [] for side in sides}
    for side in sides:
        side.start()  # warm: images, caches, imports
    for _ in range(STARTS):
        for side in sides:
            time.sleep(SETTLE)
            starts[side.name].append(side.start())
            print(f"  start, {side.name}: {starts[side.name][-1]:.2f} s", file=sys.stderr, flush=True)
    for _ in range(ROUNDS):
        for side in sides:
            time.sleep(SETTLE)
            wholes[side.name].append(side.many(JOBS))
            print(f"  {JOBS} jobs, {side.name}: {wholes[side.name][-1]:.1f} s", file=sys.stderr, flush=True)
    first = sides[0].name
    for what, found, wanted in (
        (f"submit to user code, {STARTS} times", starts, None),
        (f"{JOBS} jobs of one second each, {ROUNDS} rounds", wholes, goal),
    ):
        rows = [
            [
                side.name,
                spread(found[side.name], digits=2 if wanted is None else 1),
                f"{median(found[side.name]) / median(found[first]):.2f}",
                f"≤ {wanted}" if wanted and side.name.startswith("weft") else "",
            ]
            for side in sides
        ]
        show(f"{title}: {what}, seconds: median (min to max)", ["what", "seconds", "ratio", "goal"], rows)


# --- Weft's side --------------------------------------------------------------------------------------------------


def by_weft(stack: Stack, engine: str) -> Side:
    def job(code: str) -> dict[str, Any]:
        base = manifest(f"python -c '{code}'", engine=engine, cpus=CPUS, memory=f"{MEMORY >> 20} MiB")
        return {name: value for name, value in base.items() if name != "data_stores"}

    def start() -> float:
        begun = time.time()
        made = stack.train(job(SAY), None)
        made.wait()
        return float(lines(made)[0]) - begun

    def many(number: int) -> float:
        client, name = stack.client, f"many-{time.time():.0f}"
        begun = time.perf_counter()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: client.train({**job(SLEEP), "name": name}, None), range(number)))
        while True:
            states = [listed.state for listed in client.jobs.list(q=name)]
            if states.count("COMPLETED") == number:
                return time.perf_counter() - begun
            assert not {"FAILED", "HALTED"} & set(states), states
            assert time.perf_counter() - begun < _PATIENCE, states
            time.sleep(_POLL)

    return Side("weft train", start, many)


def defaults() -> str:
    """Of the timings, as the tests' stacks have others."""
    return TimingSettings().model_dump_json()


# --- Kubernetes ---------------------------------------------------------------------------------------------------


def kubernetes(folder: Path) -> None:
    cluster = find_cluster()
    if cluster is None:
        print(f"kubernetes: {MISSING}")
        return
    cluster.up(nodes=2)
    try:
        images.load(cluster, images.PYTHON)
        with (
            kube_stack(cluster, folder / "kubernetes", TimingSettings().model_dump()) as started,
            cluster.namespace(f"weft-bench-{time.time():.0f}") as namespace,
        ):
            bare = BarePods(cluster, namespace)
            direct = Side("kubectl create", bare.start, bare.many)
            compare("Kubernetes", [direct, by_weft(started.stack, ENGINE)], GOAL)
    finally:
        cluster.release()


class BarePods:
    """The very pods of Weft's learners (image, resources, security, volumes), without what belongs to Weft: its Secret
    and NetworkPolicy, the attempt's token, the agent. The container runs user code and nothing else."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace, self._made = cluster, namespace, 0

    def start(self) -> float:
        begun = time.time()
        [name] = self._create(SAY, 1)
        self._wait(1)
        said = self._cluster.kubectl("logs", "-n", self._namespace, name)
        self._delete()
        return float(said) - begun

    def many(self, number: int) -> float:
        begun = time.perf_counter()
        self._create(SLEEP, number)
        self._wait(number)
        took = time.perf_counter() - begun
        self._delete()  # not counted, while Weft's jobs end with their pods gone
        return took

    def _create(self, code: str, number: int) -> list[str]:
        pods = [self._pod(code) for _ in range(number)]
        listed = {"apiVersion": "v1", "kind": "List", "items": pods}
        self._cluster.kubectl("create", "-n", self._namespace, "-f", "-", stdin=json.dumps(listed), timeout=300)
        return [pod["metadata"]["name"] for pod in pods]

    def _pod(self, code: str) -> dict[str, Any]:
        self._made += 1
        spec = LaunchSpec(
            run_name=f"weft-bare-{self._made}",
            installation="bench",
            project_id="bench",
            job_id=f"bare-{self._made}",
            attempt=1,
            learners=1,
            resources=Resources(cpus=CPUS, gpus=0, memory=MEMORY),
            image="python:3.11",
            api_url="",
            token="",
        )
        owner = {"metadata": {"name": "none", "uid": "none"}}
        made = objects.pod(ENGINE, KubernetesSettings(), "weft", spec, 0, owner)
        del made["metadata"]["ownerReferences"]
        made["metadata"]["labels"] = {"bench": "bare"}  # no engine shall take them for its own
        [container] = made["spec"]["containers"]
        container["command"] = ["python", "-c", code]
        container["env"] = [variable for variable in container["env"] if "valueFrom" not in variable]
        return made

    def _wait(self, number: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            pods = self._cluster.items("pods", self._namespace, "bench=bare")
            phases = [pod["status"].get("phase") for pod in pods]
            assert "Failed" not in phases, phases
            if phases.count("Succeeded") == number:
                return
            assert time.monotonic() < deadline, phases
            time.sleep(_POLL)

    def _delete(self) -> None:
        self._cluster.kubectl(
            "delete", "pods", "-n", self._namespace, "-l", "bench=bare", "--grace-period=0", "--force", timeout=300
        )


# --- Ray ----------------------------------------------------------------------------------------------------------


def ray(folder: Path) -> None:
    with RayCluster(cpus=4, memory=8 << 30) as cluster:
        engine = {"type": "ray", "address": cluster.address, "token": cluster.token}
        settings = {
            "WEFT_ENGINES": json.dumps({"local": {"type": "local"}, "ray": engine}),
            "WEFT_TIMINGS": defaults(),
        }
        with running(folder / "ray", settings) as stack:
            by_command, by_request = RayJobs(cluster, _by_command), RayJobs(cluster, _by_request)
            sides = [
                Side("ray job submit", by_command.start, by_command.many),
                Side("POST /api/jobs/ (what it does)", by_request.start, by_request.many),
                by_weft(stack, "ray"),
            ]
            compare("Ray", sides, GOAL)


Submit = Callable[[RayCluster, str, str], None]


def _by_command(cluster: RayCluster, name: str, code: str) -> None:
    command = [str(cluster.python), "-m", "ray.scripts.scripts", "job", "submit", "--no-wait"]
    options = ["--address", cluster.address, "--submission-id", name, "--entrypoint-num-cpus", f"{CPUS:g}"]
    words = ["--", "python", "-c", code]
    subprocess.run([*command, *options, *words], env=cluster.env, check=True, capture_output=True, timeout=_PATIENCE)


def _by_request(cluster: RayCluster, name: str, code: str) -> None:
    body = {"entrypoint": f"python -c '{code}'", "submission_id": name, "entrypoint_num_cpus": CPUS}
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}
    with urlopen(Request(cluster.address + "/api/jobs/", json.dumps(body).encode(), headers), timeout=_PATIENCE):
        pass


class RayJobs:
    """Ray jobs without Weft: no gang, no agent, no logs or results kept."""

    def __init__(self, cluster: RayCluster, submit: Submit) -> None:
        self._cluster, self._submit = cluster, submit
        self._tag, self._made, self._lock = f"{submit.__name__}-{time.time():.0f}", 0, threading.Lock()

    def start(self) -> float:
        begun = time.time()
        [name] = self._create(SAY, 1)
        self._wait([name])
        said = self._cluster.get(f"/api/jobs/{name}/logs")["logs"]
        return float(said.splitlines()[-1]) - begun  # after Ray's own words

    def many(self, number: int) -> float:
        begun = time.perf_counter()
        self._wait(self._create(SLEEP, number))
        return time.perf_counter() - begun

    def _create(self, code: str, number: int) -> list[str]:
        names = []
        for _ in range(number):
            self._made += 1
            names.append(f"{self._tag}-{self._made}")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self._submit(self._cluster, name, code), names))
        return names

    def _wait(self, names: Sequence[str]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            jobs = self._cluster.jobs()
            states = [jobs[name]["status"] for name in names if name in jobs]
            assert "FAILED" not in states, states
            if states.count("SUCCEEDED") == len(names):
                return
            assert time.monotonic() < deadline, states
            time.sleep(_POLL)


CLUSTERS: dict[str, Callable[[Path], None]] = {"kubernetes": kubernetes, "ray": ray}


def measure(name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        CLUSTERS[name](Path(folder))
