"""The capacity of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.workers.engines.kubernetes.samples import ENGINE, INSTALLATION, node, settings

from weft_core.engine import Amounts, Capacity, Taint
from weft_workers.engines.kubernetes import capacity, names

Json = dict[str, Any]
GIB = 1 << 30
OWN = names.own_labels(ENGINE, INSTALLATION)


def count(nodes: list[Json], pods: list[Json] | None = None, **changes: Any) -> Capacity:
    trimmed = [capacity.trim_pod(found) for found in pods or []]
    return capacity.capacity(ENGINE, settings(**changes), [capacity.trim_node(found) for found in nodes], trimmed, OWN)


def pod(where: str | None = "node-1", labels: dict[str, str] | None = None, **requests: str) -> Json:
    amounts = {name.replace("_", "-"): value for name, value in requests.items()}
    return {
        "metadata": {"uid": "u", "resourceVersion": "1", "labels": labels},
        "spec": {"nodeName": where, "containers": [{"resources": {"requests": amounts}}]},
    }


def test_a_nodes_own() -> None:
    there = node(
        labels={"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB", "zone": "a"},
        allocatable={
            "cpu": "7910m",
            "memory": "24581692Ki",
            "nvidia.com/gpu": "4",
            "pods": "110",
            "ephemeral-storage": "10Gi",
            "hugepages-2Mi": "0",
            "vendor.com/nic": "2",
        },
    )
    found = count([there])
    [counted] = found.nodes
    assert (counted.name, counted.cpus, counted.gpus, counted.memory) == ("node-1", 7.91, 4, 24581692 * 1024)
    assert (counted.gpu_type, dict(counted.extra)) == ("Tesla-V100-SXM2-16GB", {"vendor.com/nic": 2.0})
    assert counted.labels["zone"] == "a"
    assert counted.ready
    assert not counted.potential
    assert counted.busy == Amounts()
    assert found.grows
    assert found.queue == ""


def test_others_pods_are_busy_and_own_are_not() -> None:
    pods = [
        pod(cpu="500m", memory="1Gi"),
        pod(cpu="250m", labels={"app": "x"}),
        pod(cpu="1", labels=OWN),
        pod(cpu="1", labels={**OWN, names.ENGINE: "another"}),
        pod(None, cpu="4"),
        pod("node-2", cpu="4"),
    ]
    busy = {counted.name: counted.busy for counted in count([node(), node("node-2")], pods).nodes}
    assert busy == {"node-1": Amounts(cpus=1.75, memory=GIB), "node-2": Amounts(cpus=4)}
    nics = {"metadata": {"labels": None}, "spec": {"nodeName": "node-1", "containers": [
        {"resources": {"requests": {"vendor.com/nic": "1", "nvidia.com/gpu": "2"}}}]}}  # fmt: skip
    [counted] = count([node()], [nics]).nodes
    assert counted.busy == Amounts(gpus=2, extra={"vendor.com/nic": 1.0})


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_what_every_node_always_runs_is_off_its_size(kind: str) -> None:
    agent = pod(cpu="500m", memory="1Gi")
    agent["metadata"]["ownerReferences"] = [{"kind": kind, "name": "agent"}]
    there = node(allocatable={"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"})
    [counted] = count([there], [agent, pod(cpu="1")]).nodes
    assert (counted.cpus, counted.memory, counted.gpus) == (3.5, 7 * GIB, 1)
    assert counted.busy == Amounts(cpus=1), "a job as large as the node can start once this one has gone"


@pytest.mark.parametrize(
    ("spec", "cpus"),
    [
        (
            {"containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "500m"}}}]},
            1.5,
        ),
        ({"containers": [{}]}, 0.0),
        (
            {
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
            },
            3.0,
        ),
        (
            {
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [
                    {"resources": {"requests": {"cpu": "2"}}, "restartPolicy": "Always"},
                    {"resources": {"requests": {"cpu": "2.5"}}},
                ],
            },
            4.5,
        ),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}], "overhead": {"cpu": "250m"}}, 1.25),
        ({"containers": [{}], "resources": {"requests": {"cpu": "2"}}}, 2.0),
    ],
)
def test_what_a_pod_reserves(spec: Json, cpus: float) -> None:
    assert capacity.requests(spec).get("cpu", 0.0) == cpus


def test_nodes_that_take_nobody_just_now_are_not_ready() -> None:
    pressure = [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]
    nodes = [
        node("cordoned", unschedulable=True),
        node("lost", ready="Unknown"),
        node("down", ready="False"),
        node("full", taints=pressure),
        node("well"),
    ]
    assert [counted.name for counted in count(nodes).nodes if counted.ready] == ["well"]
    assert not any(counted.taints for counted in count(nodes).nodes)


def test_taints_but_for_those_that_the_engine_tolerates() -> None:
    taints = [
        {"key": "gpu", "effect": "NoSchedule"},
        {"key": "team", "value": "a", "effect": "NoExecute"},
        {"key": "rather-not", "effect": "PreferNoSchedule"},
    ]
    [counted] = count([node(taints=taints)]).nodes
    assert set(counted.taints) == {Taint("gpu", "", "NoSchedule"), Taint("team", "a", "NoExecute")}
    assert counted.ready
    [counted] = count([node(taints=taints)], tolerations=[{"key": "gpu", "operator": "Exists"}]).nodes
    assert [taint.key for taint in counted.taints] == ["team"]


def test_only_nodes_that_the_engine_selects() -> None:
    nodes = [node("a", labels={"pool": "training"}), node("b"), node("c", labels={"pool": "web"})]
    assert [counted.name for counted in count(nodes, node_selector={"pool": "training"}).nodes] == ["a"]


POOL = {"max": 3, "cpus": 8, "memory": 32 * GIB, "gpus": 0}


def potential(nodes: list[Json], *pools: Json, **changes: Any) -> list[str]:
    return [counted.name for counted in count(nodes, autoscaling=list(pools), **changes).nodes if counted.potential]


def test_a_pool_grows_by_what_is_not_there_yet() -> None:
    labels = {"pool": "big"}
    pool = {**POOL, "labels": labels, "gpus": 2, "gpu_type": "V100", "extra": {"nic": 1.0}}
    assert potential([], pool) == ["kube-0-0", "kube-0-1", "kube-0-2"]
    assert potential([node("a", labels=labels), node("b")], pool) == ["kube-0-1", "kube-0-2"]
    assert potential([node(str(n), labels=labels) for n in range(5)], pool) == []
    [*_, counted] = count([], autoscaling=[pool], node_selector={"zone": "a"}).nodes
    assert (counted.cpus, counted.gpus, counted.memory, counted.gpu_type) == (8, 2, 32 * GIB, "V100")
    assert dict(counted.labels) == {"pool": "big", "zone": "a"}
    assert dict(counted.extra) == {"nic": 1.0}


def test_nodes_of_a_pool_without_labels_are_told_by_their_size() -> None:
    alike = node("a", allocatable={"cpu": "7910m", "memory": "29Gi"})
    nodes = [alike, node("small", allocatable={"cpu": "2", "memory": "8Gi"})]
    assert potential(nodes, POOL) == ["kube-0-1", "kube-0-2"]
    gpu = node("gpu", allocatable={"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"})
    assert potential([gpu], POOL) == ["kube-0-0", "kube-0-1", "kube-0-2"]
    assert potential([alike], POOL, POOL) == ["kube-0-1", "kube-0-2", "kube-1-0", "kube-1-1", "kube-1-2"], (
        "counted once"
    )


def test_without_policies_jobs_share_a_network() -> None:
    assert count([]).shared_network == ""
    assert count([], network_policies=False).shared_network == "its setting network_policies is false"


def test_kueue_admits() -> None:
    assert count([], queue="team-a").queue == "Kueue's queue team-a"
