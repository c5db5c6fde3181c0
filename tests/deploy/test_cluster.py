"""The chart on a real API server, which is old: what it knows is checked there, the rest by the client's models."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.chart import CASES, EXTERNAL, HelmError, helm, merged, render
from tests.deploy.installing import eventually, for_old_clusters, left
from tests.kubernetes.cluster import Cluster
from tests.servers import Servers

IMAGES = ()
_NOT_THERE = {"podDisruptionBudget": {"enabled": False}}
# Of a 1.28, and not of the test cluster: these kinds are checked in test_chart.py.
_UNKNOWN = {"PodDisruptionBudget", "HorizontalPodAutoscaler", "ServiceMonitor", "PodMonitor"}


@contextmanager
def both(kube: Cluster, purpose: str) -> Iterator[tuple[str, str]]:
    """A namespace for the release, and one for learners."""
    name = f"weft-{purpose}-{uuid.uuid4().hex[:8]}"
    with kube.namespace(name), kube.namespace(f"{name}-learners"):
        yield name, f"{name}-learners"


@pytest.fixture(scope="module")
def namespaces(kube: Cluster) -> Iterator[tuple[str, str]]:
    with both(kube, "dry") as made:
        yield made


@contextmanager
def begin(kube: Cluster, _servers: Servers, folder: Path) -> Iterator[None]:
    """The test of a migration that fails."""
    with both(kube, "failed") as (release, learners):
        fail_to_migrate(kube, release, learners, folder)
        yield


@pytest.mark.parametrize("case", CASES)
def test_the_api_server_takes_every_object(kube: Cluster, namespaces: tuple[str, str], case: str) -> None:
    release, learners = namespaces
    where: dict[str, Any] = {"learners": {"namespace": learners}}
    if case == "everything":
        where["settings"] = {"engines": {"second": {"namespace": learners}}}
    values = CASES[case] if case == "per-project" else merged(CASES[case], where)
    documents = render(values, namespace=release).documents
    known = [document for document in documents if document["kind"] not in _UNKNOWN]
    assert {document["kind"] for document in documents} - {document["kind"] for document in known} <= _UNKNOWN
    assert known
    for document in known:
        kube.check(document, release)


def test_the_api_server_would_find_a_wrong_field(kube: Cluster, namespaces: tuple[str, str]) -> None:
    release, learners = namespaces
    wrong = json.loads(
        json.dumps(render({"learners": {"namespace": learners}}, namespace=release).one("Deployment", "weft-api"))
    )
    wrong["spec"]["template"]["spec"]["containers"][0]["ressources"] = {}
    with pytest.raises(AssertionError, match="ressources"):
        kube.check(wrong, release)


def test_a_migration_that_failed_does_not_stay(releases: Callable[[str], None]) -> None:
    """Nor does what Helm made for it, once the release is gone."""
    releases("test_cluster")


def fail_to_migrate(kube: Cluster, release: str, learners: str, folder: Path) -> None:
    values = merged(
        EXTERNAL,
        {
            "learners": {"namespace": learners, "createNamespace": False},
            # No image: it can't even begin.
            "api": {"image": {"repository": "nowhere.test/api"}, **_NOT_THERE, "autoscaling": {"enabled": False}},
            "worker": _NOT_THERE,
            "migrate": {
                "deadlineSeconds": 5,
                "ttlSecondsAfterFinished": 10,
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            },
        },
    )
    where = ("--namespace", release, "--kubeconfig", str(kube.kubeconfig))
    install = ("install", "weft", str(for_old_clusters(folder)), *where, "--values", "-", "--timeout", "600s")
    with pytest.raises(HelmError, match="pre-install"):
        helm(*install, stdin=yaml.safe_dump(values), timeout=660)
    (job,) = kube.items("jobs", release)
    assert job["spec"]["ttlSecondsAfterFinished"] == 10
    # Its pods go first, and the kubelet takes its time for that.
    eventually(lambda: not kube.items("jobs,pods", release), "its time to live", 600)
    assert left(kube, release) >= {"Secret/weft-migrate", "ConfigMap/weft-migrate"}
    helm("uninstall", "weft", *where, "--timeout", "600s", timeout=660)
    assert left(kube, release) == set()
