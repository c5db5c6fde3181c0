"""The chart on a real API server, which is old: what it knows is checked there, the rest by the client's models."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.deploy.chart import CASES, merged, render
from tests.kubernetes.cluster import Cluster

# Of a 1.28, and not of the test cluster: these kinds are checked in test_chart.py.
_UNKNOWN = {"PodDisruptionBudget", "HorizontalPodAutoscaler", "ServiceMonitor", "PodMonitor"}


@pytest.fixture(scope="module")
def namespaces(kube: Cluster) -> Iterator[tuple[str, str]]:
    """One for the release, one for learners."""
    name = f"weft-dry-{uuid.uuid4().hex[:8]}"
    with kube.namespace(name), kube.namespace(f"{name}-learners"):
        yield name, f"{name}-learners"


@pytest.mark.parametrize("case", CASES)
def test_the_api_server_takes_every_object(kube: Cluster, namespaces: tuple[str, str], case: str) -> None:
    release, learners = namespaces
    where: dict[str, Any] = {"learners": {"namespace": learners}}
    if case == "everything":
        where["settings"] = {"engines": {"second": {"namespace": learners}}}
    values = CASES[case] if case == "per-project" else merged(CASES[case], where)
    documents = render(values, namespace=release).documents
    known = [one for one in documents if one["kind"] not in _UNKNOWN]
    assert {one["kind"] for one in documents} - {one["kind"] for one in known} <= _UNKNOWN
    # Applied by the server, a field that it does not know is an error.
    answer = kube.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-", "-o", "name"),
        stdin=yaml.safe_dump_all(known),
    )
    assert len(answer.split()) == len(known)


def test_the_api_server_would_find_a_wrong_field(kube: Cluster, namespaces: tuple[str, str]) -> None:
    release, learners = namespaces
    wrong = json.loads(
        json.dumps(render({"learners": {"namespace": learners}}, namespace=release).one("Deployment", "weft-api"))
    )
    wrong["spec"]["template"]["spec"]["containers"][0]["ressources"] = {}
    with pytest.raises(AssertionError, match="ressources"):
        kube.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(wrong))
