"""What is measured, and the tables."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import text
from tests.kubernetes.cluster import MISSING, Cluster, find_cluster
from tests.servers import Servers

from benchmarks.pods.nodes import PODS_PER_NODE, Number, Server, add, kubelet
from benchmarks.pods.starting import ENGINE, GANG, INSTALLATION, Start, by_requests, by_weft, gangs, remove
from benchmarks.queue.filling import fill
from benchmarks.queue.workers import worker_settings
from benchmarks.table import median, show, spread
from weft_core.engine_settings import KubernetesSettings
from weft_workers.context import Context, make_context
from weft_workers.engines.kubernetes.engine import KubernetesEngine
from weft_workers.reconcile import step
from weft_workers.watching import watch

SIZES = [int(size) for size in os.environ.get("WEFT_BENCH_PODS", "200,700,2000").split(",")]
STARTS, ROUNDS = 3, 7
LOOKS = 5
"""Observations a round: the kernel counts the time of a process in hundredths of a second."""
_FLAGS = {
    # The scheduler's usual limit of 50 requests a second would be all that is measured.
    "WEFT_KUBE_SCHED_FLAGS": "--kube-api-qps=2000 --kube-api-burst=2000",
    # The nodes have no kubelet that says every ten seconds that it is alive.
    "WEFT_KUBE_KCM_FLAGS": "--node-monitor-grace-period=2h",
    "WEFT_KUBE_APISERVER_FLAGS": "--enable-priority-and-fairness=false",
}


def measure(folder: Path) -> None:
    cluster = Cluster(flags=_FLAGS)
    if find_cluster() is None:
        print(f"pods: {MISSING}")
        return
    if cluster.is_up:
        raise SystemExit("pods: a Kubernetes is up, with nodes; take it down first: this needs one with other settings")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    cluster.up_without_nodes()
    servers = Servers()
    try:
        starts: dict[int, tuple[list[Start], list[Start]]] = {}
        costs: dict[str, dict[int, list[float]]] = {}
        server, nodes = Server(cluster.kubeconfig), 0
        with cluster.namespace(f"weft-bench-{time.time():.0f}") as namespace:
            settings = KubernetesSettings(kubeconfig=cluster.kubeconfig, namespace=namespace)
            for size in SIZES:
                add(server, size // PODS_PER_NODE, nodes)
                nodes = size // PODS_PER_NODE
                with kubelet(cluster.kubeconfig, namespace) as running:
                    starts[size] = _start(server, settings, size, running)
                for what, values in _observe(settings, size).items():
                    costs.setdefault(what, {})[size] = values
                for what, values in _reconcile(servers, folder, settings, size).items():
                    costs.setdefault(what, {})[size] = values
                remove(server, namespace, gangs(size))
    finally:
        servers.stop()
        cluster.release()
    _show_starts(starts)
    _show_costs(costs)


def _say(words: str) -> None:
    print(f"  {words}", file=sys.stderr, flush=True)


def _engine(settings: KubernetesSettings) -> KubernetesEngine:
    return KubernetesEngine(ENGINE, settings, "weft", INSTALLATION)


# --- starts -------------------------------------------------------------------------------------------------------


def _start(server: Server, settings: KubernetesSettings, size: int, running: Number) -> tuple[list[Start], list[Start]]:
    """By requests and by Weft, in turns; the pods of the last start stay."""
    specs, direct, weft = gangs(size), list[Start](), list[Start]()
    engine = _engine(settings)
    for number in range(STARTS):
        direct.append(by_requests(server, settings, specs, running))
        remove(server, settings.namespace, specs)
        weft.append(by_weft(engine, specs, running))
        if number < STARTS - 1:
            remove(server, settings.namespace, specs)
        _say(f"{size:,} pods: {direct[-1].running:.1f} s by requests, {weft[-1].running:.1f} s by Weft")
    engine.close()
    return direct, weft


def _show_starts(found: dict[int, tuple[list[Start], list[Start]]]) -> None:
    rows = []
    for size, (direct, weft) in found.items():
        for name, starts in (("the requests alone", direct), ("weft", weft)):
            created, running = ([getattr(start, what) for start in starts] for what in ("created", "running"))
            ratio = median(running) / median([start.running for start in direct])
            goal = "< 2" if name == "weft" else ""
            rows.append([f"{size:,} pods", name, spread(created), spread(running), f"{ratio:.2f}", goal])
    show(
        f"Pods of gangs of {GANG}, four gangs at once, {STARTS} times: seconds, median (min to max)",
        ["pods", "what", "created", "running", "ratio", "goal"],
        rows,
    )


# --- costs --------------------------------------------------------------------------------------------------------


def _spent(work: Callable[[], object]) -> float:
    """Seconds of processor time of this process, with all its threads."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _observe(settings: KubernetesSettings, size: int) -> dict[str, list[float]]:
    """Seconds of processor time for all pods."""
    first, rest = [], []
    for _ in range(ROUNDS):
        engine = _engine(settings)
        first.append(_spent(engine.observe))
        rest.append(_spent(partial(_repeat, engine.observe)) / LOOKS)
        assert sum(len(run.learners) for run in engine.observe().values()) == size
        engine.close()
    return {"a new engine's first observation": first, "an observation at rest": rest}


def _repeat(work: Callable[[], object]) -> None:
    for _ in range(LOOKS):
        work()


@contextmanager
def _filled(servers: Servers, folder: Path, kubernetes: KubernetesSettings, jobs: int) -> Iterator[Context]:
    """A worker's context, with a database in which all these jobs run."""
    with servers.database_url() as url:
        settings = worker_settings(servers, url, folder, engines={ENGINE: kubernetes})
        engine = _engine(kubernetes)
        context = make_context(settings, INSTALLATION, {ENGINE: engine})
        fill(context.database, 0, jobs, engine=ENGINE, learners=GANG)
        yield context
        context.close()
        engine.close()


def _reconcile(servers: Servers, folder: Path, settings: KubernetesSettings, size: int) -> dict[str, list[float]]:
    """Seconds of processor time for all jobs."""
    watches, steps = [], []
    jobs = size // GANG
    with _filled(servers, folder, settings, jobs) as context:
        _steps(context, jobs)  # notes the learners' nodes
        for _ in range(ROUNDS):
            steps.append(_spent(partial(_steps, context, jobs)))
            _later(context)
            watches.append(_spent(partial(_repeat, partial(_watch, context))) / LOOKS)
        with context.database.transaction() as session:
            left = session.scalar(text("select count(*) from jobs where state = 'PROCESSING' and attempt = 1"))
            assert left == jobs, f"only {left} of {jobs} jobs still run"
    return {"a watch of all jobs": watches, "a step of each job": steps}


def _steps(context: Context, jobs: int) -> None:
    with context.database.transaction() as session:
        session.execute(text("update learners set heartbeat_at = now()"))
        session.execute(text("update jobs set next_step_at = now()"))
    for number in range(1, jobs + 1):
        step(context, f"open-{number}", linger=False)


def _later(context: Context) -> None:
    with context.database.transaction() as session:
        session.execute(text("update jobs set next_step_at = now() + interval '300 s'"))


def _watch(context: Context) -> None:
    with context.database.transaction() as session:
        session.execute(text("update queues set next_watch_at = now()"))
    assert watch(context, ENGINE) == []


def _show_costs(found: dict[str, dict[int, list[float]]]) -> None:
    rows = []
    for what, sizes in found.items():
        smallest = min(sizes)
        for size, values in sizes.items():
            growth = (median(values) / size) / (median(sizes[smallest]) / smallest)
            each = f"{median(values) / size * 1e6:.0f}"
            goal = "≤ 1.2" if size != smallest else ""
            rows.append([f"{what}, {size:,} pods", spread(values, 1000), each, f"{growth:.2f}", goal])
    show(
        "Processor time of the worker: ms for all pods, median (min to max), and µs for each pod",
        ["what", "ms", "µs", "growth", "goal"],
        rows,
    )
