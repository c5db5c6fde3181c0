"""Engines on the real cluster, in a namespace of a test's own."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.kubernetes.cluster import Cluster, is_bygone
from tests.workers.engines.kubernetes import samples

from weft_core.engine import EngineUnreachable, LearnerObservation, LearnerState, Observation
from weft_core.launch import LaunchSpec
from weft_workers.engines.kubernetes import KubernetesEngine

T = TypeVar("T")
Json = dict[str, Any]
STANDIN_IMAGE = "weft.test/standin:1"
STANDIN = """#!/bin/sh
# Stands in for the agent where the agent does not matter: runs what comes after the # of the API's URL.
exec sh -c "${WEFT_API_URL#*#}"
"""
FOREVER = "trap 'exit 0' TERM; sleep 600 & wait"
STUBBORN = "trap '' TERM; exec sleep 600"
SLOW = "trap 'sleep 4; exit 0' TERM; sleep 600 & wait"
PATIENCE = 240.0


def until(condition: Callable[[], T | None], seconds: float = PATIENCE) -> T:
    """The first true answer; an engine that can't be reached for a moment is asked again, as the reconciler does. Each
    check asks the cluster, so the pauses grow with the time that has passed."""
    began = time.monotonic()
    while True:
        answer: T | str | None
        try:
            if answer := condition():
                return answer
        except EngineUnreachable as error:
            answer = str(error)
        passed = time.monotonic() - began
        assert passed < seconds, f"not within {seconds} s; last answer: {answer!r}"
        time.sleep(min(max(0.05, passed / 20), 1))


Story = Callable[["KubeBench"], None]
STORIES: defaultdict[str, list[Story]] = defaultdict(list)
"""By module: its tests that are :func:`together`."""


def together(story: Story) -> Callable[[Callable[[Story], None]], None]:
    """For tests that wait for pods most of the time: those of a module begin at once, each on a bench of its own. Its
    turn is when its outcome is waited for."""
    STORIES[story.__module__].append(story)

    def test(begun: Callable[[Story], None]) -> None:
        begun(story)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


class KubeBench:
    """``kube``: the cluster; ``namespace``: the learners'."""

    def __init__(self, kube: Cluster, folder: Path) -> None:
        self.kube, self.folder = kube, folder
        self.installation = f"ins-{uuid.uuid4().hex[:8]}"
        self.namespace = f"engine-{self.installation}"
        self._engines: list[KubernetesEngine] = []
        self.engine = self.new_engine()

    @classmethod
    @contextmanager
    def opened(cls, kube: Cluster, folder: Path) -> Iterator[KubeBench]:
        """One in a namespace of its own on the real cluster."""
        made = cls(kube, folder)
        with kube.namespace(made.namespace):
            yield made
            made.close()

    def new_engine(self, **settings: Any) -> KubernetesEngine:
        # The stand-in is the agent. On a busy machine, a dozen engines may wait for their first list at once.
        own = {"kubeconfig": self.kube.kubeconfig, "namespace": self.namespace, "timeout": 120, "mount_agent": False}
        given = {**own, **settings}
        made = KubernetesEngine("kube", samples.settings(**given), "weft", self.installation)
        self._engines.append(made)
        return made

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def spec(self, script: str = FOREVER, **changes: Any) -> LaunchSpec:
        fields = {"cpus": 0.05, "memory": 32 << 20, "learners": 1, "image": STANDIN_IMAGE, **changes}
        return samples.spec(installation=self.installation, api_url=f"http://{self.kube.host_ip}:9/#{script}", **fields)

    # --- what is there ---

    def get(self, kind: str, name: str) -> Json | None:
        return self.kube.get(kind, name, self.namespace)

    def create(self, found: Json) -> None:
        self.kube.create(found, self.namespace)

    def patch(self, kind: str, name: str, change: Json) -> None:
        self.kube.patch(kind, name, change, self.namespace)

    def delete(self, kind: str, name: str, **options: str) -> None:
        self.kube.delete(kind, name, self.namespace, **options)

    def things(self, run_name: str, namespace: str | None = None) -> list[str]:
        """Names of what is left of a run, with the uids; but for the objects of pods that have ended and go."""
        found = self.kube.items("secrets,networkpolicies,pods", namespace or self.namespace, f"weft.dev/run={run_name}")
        return sorted(
            f"{item['kind']}/{item['metadata']['name']}/{item['metadata']['uid']}"
            for item in found
            if not is_bygone(item)
        )

    # --- what the engine says ---

    def observe(self, spec: LaunchSpec, engine: KubernetesEngine | None = None) -> Observation | None:
        return (engine or self.engine).observe().get(spec.run_name)

    def wait(
        self,
        spec: LaunchSpec,
        wanted: Callable[[LearnerObservation], object],
        engine: KubernetesEngine | None = None,
        seconds: float = PATIENCE,
    ) -> LearnerObservation:
        """The first observation in which all learners are as wanted; of the first learner."""

        def observe() -> LearnerObservation | None:
            seen = self.observe(spec, engine)
            learners = list(seen.learners.values()) if seen else []
            return learners[0] if len(learners) == spec.learners and all(map(wanted, learners)) else None

        return until(observe, seconds)

    def running(self, spec: LaunchSpec, engine: KubernetesEngine | None = None) -> LearnerObservation:
        return self.wait(spec, lambda learner: learner.state is LearnerState.RUNNING, engine)

    def exited(self, spec: LaunchSpec, engine: KubernetesEngine | None = None) -> LearnerObservation:
        return self.wait(spec, lambda learner: learner.state is LearnerState.EXITED, engine)

    def gone(self, spec: LaunchSpec, namespace: str | None = None) -> None:
        until(lambda: (seen := self.observe(spec)) is None or seen.gone, PATIENCE)
        until(lambda: not self.things(spec.run_name, namespace), PATIENCE)
