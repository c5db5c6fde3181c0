"""A whole stack with the test cluster as an engine beside the local one, and what a test looks at on the cluster."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.stack import Stack, eventually, manifest, running
from tests.kubernetes.cluster import Cluster

import weft

ENGINE = "kubernetes"
# Small where that keeps their meaning; the grace stays long, so that nobody is killed who still saves.
TIMINGS = {
    "WEFT_TIMINGS__HEARTBEAT": "1",
    "WEFT_TIMINGS__SILENCE": "12",
    "WEFT_TIMINGS__VERDICT": "45",
    "WEFT_TIMINGS__ORPHAN_GRACE": "3",
    "WEFT_TIMINGS__SWEEP": "1",
    "WEFT_TIMINGS__START_TIMEOUT": "240",
}


class KubeStack:
    """A stack, and the namespace of its learners."""

    def __init__(self, stack: Stack, cluster: Cluster, namespace: str) -> None:
        self.stack, self.cluster, self.namespace = stack, cluster, namespace

    def train(self, command: str, **changes: Any) -> weft.Job:
        """A small job on the cluster with the code of tests/e2e/programs."""
        small = {"engine": ENGINE, "cpus": 0.1, "memory": "256 MiB"}
        return self.stack.train(manifest(command, **(small | changes)))

    def objects(self, job: weft.Job | str, kind: str = "pods") -> list[dict[str, Any]]:
        """A job's objects."""
        wanted = job if isinstance(job, str) else job.id
        return self.cluster.items(kind, self.namespace, f"weft.dev/job={wanted}")

    def pods(self, job: weft.Job) -> dict[int, dict[str, Any]]:
        """A job's pods by learner (from 1)."""
        return {int(one["metadata"]["labels"]["weft.dev/learner"]): one for one in self.objects(job)}

    def kinds_left(self, job: weft.Job | str) -> list[str]:
        """What is left of a job on the cluster."""
        found = json.loads(
            self.cluster.kubectl(
                *("get", "pods,secrets,networkpolicies", "-n", self.namespace),
                *("-l", f"weft.dev/job={job if isinstance(job, str) else job.id}", "-o", "json"),
            )
        )["items"]
        return [f"{one['kind']} {one['metadata']['name']}" for one in found]

    def check_nothing_left(self, job: weft.Job | str) -> None:
        """A pod's object goes some time after its container has ended."""
        eventually(lambda: not self.kinds_left(job), f"nothing left on the cluster: {self.kinds_left(job)}", 120)

    def shown(self, job: weft.Job) -> str:
        """What `weft show` prints, on one line."""
        return " ".join(self.stack.weft("show", job.id).stdout.replace("│", " ").split())


def messages(job: weft.Job) -> str:
    """All events of a job."""
    return "\n".join(event.message for event in job.events())


def starts(job: weft.Job, learner: int = 1) -> list[int]:
    """The step that each attempt of steps.py began with."""
    said = [line.text for line in job.logs(learner=learner)]
    return [int(line.rsplit(" ", 1)[1]) for line in said if line.startswith("attempt ")]


def outcomes(job: weft.Job) -> list[str | None]:
    return [attempt.outcome for attempt in job.attempts]


@contextmanager
def kube_stack(
    cluster: Cluster, home: Path, kubeconfig: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[KubeStack]:
    """A stack that pods reach, with an engine on the cluster in a namespace of its own."""
    with cluster.namespace(f"weft-e2e-{uuid.uuid4().hex[:6]}") as namespace:
        engine = {"type": "kubernetes", "kubeconfig": str(kubeconfig or cluster.kubeconfig), "namespace": namespace}
        settings = {
            "WEFT_API__HOST": cluster.host_ip,
            "WEFT_ENGINES": json.dumps({"local": {"type": "local"}, ENGINE: engine}),
            **TIMINGS,
            **(environment or {}),
        }
        with running(home, settings) as stack:
            yield KubeStack(stack, cluster, namespace)
