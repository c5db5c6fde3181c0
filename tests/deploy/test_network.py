"""The network policies, evaluated on the chart's own pods and on learners as the engine makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.deploy.chart import NAMESPACE, PER_PROJECT, Document, Rendered, merged, render

from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec, Resources
from weft_workers.engines.kubernetes import objects

LEARNER = {"app.kubernetes.io/name": "weft-learner", "app.kubernetes.io/managed-by": "weft", "weft.dev/job": "job-1"}


@dataclass(frozen=True)
class Pod:
    namespace: str
    labels: dict[str, str]
    namespace_labels: dict[str, str] = field(default_factory=dict)

    @property
    def of_namespace(self) -> dict[str, str]:
        return {"kubernetes.io/metadata.name": self.namespace, **self.namespace_labels}


def selects(selector: Document, labels: dict[str, str]) -> bool:
    """As Kubernetes evaluates a label selector; an empty one selects all."""
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def is_peer(peer: Document, pod: Pod, policy_namespace: str) -> bool:
    if "ipBlock" in peer:
        return False
    there = (
        selects(peer["namespaceSelector"], pod.of_namespace)
        if "namespaceSelector" in peer
        else pod.namespace == policy_namespace
    )
    return there and selects(peer.get("podSelector", {}), pod.labels)


def reaches(rendered: Rendered, source: Pod, target: Pod, port: int) -> bool:
    """Whether the policies of the target's namespace let it in."""
    applying = [
        policy
        for policy in rendered.all("NetworkPolicy")
        if policy["metadata"]["namespace"] == target.namespace
        and "Ingress" in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], target.labels)
    ]
    if not applying:
        return True
    return any(
        port in [allowed["port"] for allowed in rule["ports"]]
        and any(is_peer(peer, source, target.namespace) for peer in rule["from"])
        for policy in applying
        for rule in policy["spec"].get("ingress", [])
    )


def component(rendered: Rendered, name: str) -> Pod:
    return Pod(NAMESPACE, rendered.pod(name)["metadata"]["labels"])


INGRESS = Pod("ingress-nginx", {"app": "controller"})
PROMETHEUS = Pod("monitoring", {"app": "prometheus"})
LEARNERS = Pod("weft-learners", LEARNER)
STRANGER = Pod("default", {"app": "stranger"})
NEIGHBOUR = Pod(NAMESPACE, {"app": "neighbour"})  # in our namespace, but none of ours
OTHER_RELEASE = Pod(
    NAMESPACE,
    {"app.kubernetes.io/name": "weft", "app.kubernetes.io/instance": "other", "app.kubernetes.io/component": "api"},
)
PRETENDER = Pod("default", LEARNER)

PORTS = {"api": 8080, "worker": 8080, "postgres": 5432, "redis": 6379, "s3": 8333}
MAY = {
    "api": {"api", "worker", "ingress", "prometheus", "learners"},
    "worker": set(),
    "postgres": {"api", "worker", "migrate"},
    "redis": {"api", "worker"},
    "s3": {"api", "worker", "migrate", "ingress", "learners"},
}


@pytest.mark.parametrize("target", MAY)
def test_who_reaches_whom(target: str) -> None:
    rendered = render({})
    sources = {name: component(rendered, name) for name in ("api", "worker", "migrate", "postgres", "redis", "s3")}
    sources |= {"ingress": INGRESS, "prometheus": PROMETHEUS, "learners": LEARNERS}
    sources |= {"stranger": STRANGER, "neighbour": NEIGHBOUR, "other": OTHER_RELEASE, "pretender": PRETENDER}
    found = {
        name for name, pod in sources.items() if reaches(rendered, pod, component(rendered, target), PORTS[target])
    }
    assert found == MAY[target]
    for pod in sources.values():  # and no other port at all
        assert not reaches(rendered, pod, component(rendered, target), 22)


def test_prometheus_alone_asks_workers_and_only_where_they_tell() -> None:
    rendered = render({"serviceMonitor": {"enabled": True}})
    worker = component(rendered, "worker")
    for pod in (INGRESS, LEARNERS, STRANGER, NEIGHBOUR, component(rendered, "api")):
        assert not reaches(rendered, pod, worker, 9091)
    assert reaches(rendered, PROMETHEUS, worker, 9091)
    assert not reaches(render({}), PROMETHEUS, worker, 9091)
    nobody = render({"serviceMonitor": {"enabled": True}, "networkPolicies": {"metricsFrom": []}})
    assert not reaches(nobody, STRANGER, worker, 9091)


def test_learners_are_shut_in_by_default() -> None:
    rendered = render({})
    (deny,) = [policy for policy in rendered.all("NetworkPolicy") if policy["metadata"]["namespace"] == "weft-learners"]
    assert deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    # In a namespace of others, learners only.
    shared = render({"learners": {"createNamespace": False}})
    (deny,) = [policy for policy in shared.all("NetworkPolicy") if policy["metadata"]["namespace"] == "weft-learners"]
    assert selects(deny["spec"]["podSelector"], LEARNER)
    assert not selects(deny["spec"]["podSelector"], STRANGER.labels)
    # Without policies of the engine's nothing would open it again.
    for values in (
        {"settings": {"engines": {"kubernetes": {"network_policies": False}}}},
        {"learners": {"defaultDeny": False}},
    ):
        assert not [
            policy for policy in render(values).all("NetworkPolicy") if policy["metadata"]["namespace"] != NAMESPACE
        ]


def test_learners_are_known_by_the_engines_labels() -> None:
    spec = LaunchSpec(
        run_name="weft-job-1-1",
        installation="inst-1",
        project_id="proj-1",
        job_id="job-1",
        attempt=1,
        learners=1,
        resources=Resources(cpus=1, gpus=0, memory=1 << 30),
        image="python:3.11",
        api_url="http://weft-api.weft-system.svc:8080",
        token="secret",
    )
    secret = {"metadata": {"name": "weft-job-1-1", "uid": "1", "namespace": "weft-learners"}}
    pod = objects.pod("kubernetes", KubernetesSettings(), "weft", spec, 0, secret, [])
    assert LEARNER.items() <= {**pod["metadata"]["labels"], "weft.dev/job": "job-1"}.items()
    rendered = render({})
    assert reaches(rendered, Pod("weft-learners", pod["metadata"]["labels"]), component(rendered, "api"), 8080)


def test_a_namespace_per_project_reaches_the_api() -> None:
    rendered = render(PER_PROJECT)
    learner = Pod("learners-proj-1", LEARNER)
    assert reaches(rendered, learner, component(rendered, "api"), 8080)
    assert reaches(rendered, learner, component(rendered, "s3"), 8333)
    assert not reaches(rendered, Pod("learners-proj-1", {"app": "x"}), component(rendered, "api"), 8080)
    assert not reaches(rendered, learner, component(rendered, "postgres"), 5432)


def test_services_and_budgets_select_their_pods(rendered: Rendered) -> None:
    pods = {name: pod["metadata"]["labels"] for name, pod in rendered.pods()}

    def selected(selector: dict[str, str]) -> list[str]:
        return [name for name, labels in pods.items() if selects({"matchLabels": selector}, labels)]

    for service in rendered.all("Service"):
        assert selected(service["spec"]["selector"]) == [service["metadata"]["name"]]
        (pod,) = [pod for name, pod in rendered.pods() if name == service["metadata"]["name"]]
        ports = {declared["name"] for container in pod["spec"]["containers"] for declared in container.get("ports", [])}
        assert {declared["targetPort"] for declared in service["spec"]["ports"]} <= ports
    for budget in rendered.all("PodDisruptionBudget"):
        assert selected(budget["spec"]["selector"]["matchLabels"]) == [budget["metadata"]["name"]]
    for owner in rendered.all("Deployment") + rendered.all("StatefulSet"):
        assert selected(owner["spec"]["selector"]["matchLabels"]) == [owner["metadata"]["name"]]
        for constraint in owner["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
            assert selected(constraint["labelSelector"]["matchLabels"]) == [owner["metadata"]["name"]]
    for monitor in rendered.all("ServiceMonitor"):
        labels = rendered.one("Service", "weft-api")["metadata"]["labels"]
        assert selects(monitor["spec"]["selector"], labels)
    for monitor in rendered.all("PodMonitor"):
        assert selected(monitor["spec"]["selector"]["matchLabels"]) == ["weft-worker"]
        (worker,) = rendered.pod("worker")["spec"]["containers"]
        (port,) = worker["ports"]
        assert port["name"] == monitor["spec"]["podMetricsEndpoints"][0]["port"]
        told = {variable["name"]: variable.get("value") for variable in worker["env"]}
        assert told["WEFT_TELEMETRY__METRICS_PORT"] == str(port["containerPort"])
    for ingress in rendered.all("Ingress"):
        backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert backend["port"]["name"] in [p["name"] for p in rendered.one("Service", backend["name"])["spec"]["ports"]]


def test_policies_can_be_left_to_others() -> None:
    assert not render({"networkPolicies": {"enabled": False}}).all("NetworkPolicy")
    values: dict[str, Any] = {
        "networkPolicies": {"apiFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "metricsFrom": []}
    }
    rendered = render(merged(values))
    assert not reaches(rendered, INGRESS, component(rendered, "api"), 8080)
    peers = rendered.one("NetworkPolicy", "weft-api")["spec"]["ingress"][0]["from"]
    assert {"ipBlock": {"cidr": "192.0.2.0/24"}} in peers
