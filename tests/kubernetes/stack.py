"""A whole stack with the test cluster as an engine beside the local one, and the tests' queries of the cluster."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.stack import PROGRAMS, Stack, eventually, manifest, running, saw
from tests.kubernetes.cluster import Cluster, is_bygone
from tests.kubernetes.proxy import Proxy

import weft

ENGINE, BY_PROXY = "kubernetes", "kubernetes-by-proxy"
# Small where that keeps their meaning; the grace stays long, so that nobody is killed who still saves.
TIMINGS = {
    "heartbeat": 1,
    "silence": 12,
    "verdict": 45,
    "orphan_grace": 3,
    "sweep": 1,
    "lease": 5,
    "elastic_cooldown": 4,
}
_EVERYWHERE = {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": "weft-learner"}}}
_SPREAD = [{"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", **_EVERYWHERE}}]
_SECOND = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"]}]
_PREFERENCE = {"weight": 100, "preference": {"matchExpressions": _SECOND}}
_RATHER = {"preferredDuringSchedulingIgnoredDuringExecution": [_PREFERENCE]}
_SMALL = {"cpus": 0.1, "memory": 256 << 20}
PROFILES: dict[str, dict[str, Any]] = {
    # Its learners on different nodes, if there are.
    "spread": {**_SMALL, "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _SPREAD}}},
    "rather-node-2": {**_SMALL, "affinity": {"nodeAffinity": _RATHER}},
    "unknown-class": {**_SMALL, "priority_class": "no-such-class"},
}
# Trains until its attempt ends, a step every $PAUSE seconds; a later attempt does five steps more than there were.
RESUMES = (
    "steps=100000; pause=${PAUSE:-0.2}; "
    '[ "$WEFT_ATTEMPT" = 1 ] || { steps=$(($(cat "$CHECKPOINT_DIR/step.txt") + 5)); pause=0.2; }; '
    "exec python steps.py $steps $pause"
)
# The file whose appearance tells a learner to end (KubeStack.tell).
END = "/tmp/end"
TICKS = f'n=0; until [ -e {END} ]; do echo "tick $n"; n=$((n + 1)); sleep 0.25; done; echo told'


class KubeStack:
    """A stack, and the namespace of its learners."""

    def __init__(self, stack: Stack, cluster: Cluster, namespace: str, proxy: Proxy) -> None:
        self.stack, self.cluster, self.namespace, self.proxy = stack, cluster, namespace, proxy
        self.trained: list[weft.Job] = []
        self.begun: dict[str, weft.Job] = {}
        """By name: the jobs that began with the stack (see conftest.py)."""

    def train(self, command: str, code: Path = PROGRAMS, **changes: Any) -> weft.Job:
        """A small job on the cluster; its code is that of tests/e2e/programs, unless it is given."""
        base = manifest(command, engine=ENGINE, cpus=0.1, memory="256 MiB")
        if "profile" in changes:
            base = {name: value for name, value in base.items() if name not in ("cpus", "memory")}
        job = self.stack.train(base | changes, code)
        self.trained.append(job)
        return job

    def tell(self, job: weft.Job, learner: int = 1) -> None:
        """Have a learner end that runs until END is there."""
        pod = self.pods(job)[learner]["metadata"]["name"]
        self.cluster.kubectl("exec", "-n", self.namespace, pod, "--", "touch", END)

    @property
    def database_url(self) -> str:
        command = [sys.executable, "-m", "weft_embedded", "env", "--home", str(self.stack.home)]
        printed = subprocess.run(
            command, env=self.stack.environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        [line] = [line for line in printed.splitlines() if line.startswith("export WEFT_DATABASE_URL=")]
        [url] = shlex.split(line.partition("=")[2])
        return url.replace("postgresql+psycopg://", "postgresql://", 1)

    def end(self) -> None:
        """Halt what failed tests have left, and check that nothing is left of any job."""
        for job in self.trained:
            if not job.refresh().is_terminal:
                job.halt(grace_seconds=0)
        self.check_nothing_left()

    # --- on the cluster ---

    def objects(self, job: weft.Job | str, kind: str = "pods") -> list[dict[str, Any]]:
        """A job's objects; several kinds with commas."""
        wanted = job if isinstance(job, str) else job.id
        return self.cluster.items(kind, self.namespace, f"weft.dev/job={wanted}")

    def pods(self, job: weft.Job) -> dict[int, dict[str, Any]]:
        """A job's pods by learner (from 1)."""
        return {int(pod["metadata"]["labels"]["weft.dev/learner"]): pod for pod in self.objects(job)}

    def nodes(self, job: weft.Job) -> dict[int, str]:
        """Where its learners run, once all do."""
        placed = {learner: pod["spec"].get("nodeName", "") for learner, pod in self.pods(job).items()}
        return placed if len(placed) == job.learners and all(placed.values()) else {}

    def left(self, job: weft.Job | str | None = None) -> list[str]:
        """What is left on the cluster of a job, or of all, but for the objects of pods that have ended and go."""
        kinds = "pods,secrets,networkpolicies"
        label = "weft.dev/job" + ("" if job is None else f"={job if isinstance(job, str) else job.id}")
        found = self.cluster.items(kinds, self.namespace, label)
        return [f"{item['kind']} {item['metadata']['name']}" for item in found if not is_bygone(item)]

    def check_nothing_left(self, job: weft.Job | str | None = None) -> None:
        """The cluster's garbage collector takes its time."""
        deadline = time.monotonic() + 300
        while left := self.left(job):
            assert time.monotonic() < deadline, f"still on the cluster: {left}"
            time.sleep(0.5)

    # --- what users see ---

    def shown(self, job: weft.Job) -> str:
        """What `weft show` prints, on one line."""
        return " ".join(self.stack.weft("show", job.id).stdout.replace("│", " ").split())

    def engine(self, name: str = ENGINE) -> weft.Engine:
        return self.stack.client.engine(name)


def messages(job: weft.Job) -> str:
    """All events of a job."""
    return "\n".join(event.message for event in job.events())


def starts(job: weft.Job, learner: int = 1) -> list[int]:
    """The step that each attempt of steps.py began with."""
    said = [line.text for line in job.logs(learner=learner)]
    return [int(line.rsplit(" ", 1)[1]) for line in said if line.startswith("attempt ")]


def steps(job: weft.Job, attempt: int) -> list[int]:
    """The steps that learner 1 has done in an attempt of steps.py."""
    said = [line.text for line in job.logs(learner=1) if line.attempt == attempt]
    return [int(line.split()[1]) for line in said if line.startswith("step ")]


def when(job: weft.Job, condition: Callable[[weft.Job], object], what: str, seconds: float = 600) -> weft.Job:
    """The job as it is once the condition holds."""

    def look() -> weft.Job | None:
        now = job.refresh()
        return now if condition(now) else None

    found: weft.Job = eventually(look, what, seconds)
    return found


def processing(job: weft.Job) -> weft.Job:
    return when(job, lambda now: now.state == "PROCESSING", "processing")


def under_way(on_kube: KubeStack, job: weft.Job, step: int = 5) -> dict[int, str]:
    """Wait until steps.py trains; returns where its learners run."""
    for learner in range(1, job.learners + 1):
        shown = saw(job, f"step {step}", learner)
        now = when(job, lambda now: shown() or now.is_terminal, f"learner {learner} trains", 240)  # noqa: B023
        assert not now.is_terminal, now.reason
    return on_kube.nodes(job)


def outcomes(job: weft.Job) -> list[str | None]:
    return [attempt.outcome for attempt in job.attempts]


@contextmanager
def kube_stack(cluster: Cluster, home: Path, timings: Mapping[str, float] | None = None) -> Iterator[KubeStack]:
    """A stack that pods reach, with the cluster as two engines: directly, and through a proxy, each in a namespace."""
    with ExitStack() as opened:
        tag = uuid.uuid4().hex[:6]
        namespace = opened.enter_context(cluster.namespace(f"weft-e2e-{tag}"))
        proxy = Proxy(cluster, home.parent)
        opened.callback(proxy.close)
        # Besides the stack's own servers, tests start some there that manifests name, such as a package index.
        shared = {"type": "kubernetes", "namespace": namespace, "egress": [f"{cluster.host_ip}/32"]}
        engines = {
            "local": {"type": "local"},
            ENGINE: {**shared, "kubeconfig": str(cluster.kubeconfig)},
            BY_PROXY: {**shared, "kubeconfig": str(proxy.kubeconfig)},
        }
        settings = {
            "WEFT_API__HOST": cluster.host_ip,
            "WEFT_ENGINES": json.dumps(engines),
            "WEFT_PROFILES": json.dumps(PROFILES),
            "WEFT_TIMINGS": json.dumps({**TIMINGS, **(timings or {})}),
        }
        stack = opened.enter_context(running(home, settings))
        yield KubeStack(stack, cluster, namespace, proxy)
