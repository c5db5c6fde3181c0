"""Objects are created once, adopted if they are this attempt's, and removed if not all can be created."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.workers.engines.kubernetes import samples
from tests.workers.engines.kubernetes.bench import PATIENCE, KubeBench, together, until

from weft_core.engine import EngineUnreachable, LaunchRefused, LearnerState
from weft_core.launch import Placement
from weft_workers.engines.kubernetes import objects

NOW = timedelta(0)


@together
def test_a_run_from_start_to_end(bench: KubeBench) -> None:
    spec = bench.spec(learners=2)
    assert bench.observe(spec) is None
    bench.engine.launch(spec)
    seen = bench.observe(spec)
    assert seen is not None
    assert sorted(seen.learners) == [0, 1], "what was created is seen at once"
    there = bench.things(spec.run_name)
    assert [thing.split("/")[0] for thing in there] == ["NetworkPolicy", "Pod", "Pod", "Secret"]
    learner = bench.running(spec)
    assert learner.node in bench.kube.nodes
    bench.engine.launch(spec)
    bench.new_engine().launch(spec)
    assert bench.things(spec.run_name) == there, "all of it was adopted"
    bench.engine.stop(spec.run_name, timedelta(seconds=30))
    bench.gone(spec)


@together
def test_a_learner_has_what_it_shall_have(bench: KubeBench) -> None:
    script = (
        "set -e; id -u; env | grep -E '^(WEFT_(RANK|NUM|WORKDIR|GRACE|ATTEMPT)|HOME|USER)' | sort; "
        'test "$WEFT_ADVERTISE_ADDRESS" = "$(hostname -i)"; '
        "touch /weft/x /tmp/x /dev/shm/x; "
        "if touch /x 2>/dev/null; then echo root is writable; fi; "
        "if [ -e /var/run/secrets/kubernetes.io ]; then echo there is a token; fi; "
        "grep NoNewPrivs /proc/self/status; grep CapEff /proc/self/status; exit 4"
    )
    spec = bench.spec(script, memory=64 << 20, learners=1)
    bench.engine.launch(spec)
    assert bench.exited(spec).exit_code == 4
    log = bench.kube.kubectl("logs", "-n", bench.namespace, f"{spec.run_name}-1").splitlines()
    assert log[0] == "10001"
    assert log[1:-2] == [
        "HOME=/weft",
        "USER=weft",
        "WEFT_ATTEMPT_TOKEN=attempt-token",
        "WEFT_GRACE_SECONDS=30",
        "WEFT_NUM_LEARNERS=1",
        "WEFT_RANK=0",
        "WEFT_WORKDIR=/weft/work",
    ]
    assert [line.split() for line in log[-2:]] == [["NoNewPrivs:", "1"], ["CapEff:", "0000000000000000"]]


@together
def test_half_of_an_attempt_is_completed_and_all_of_it_goes_with_the_secret(bench: KubeBench) -> None:
    spec = bench.spec(learners=3)
    bench.engine.launch(spec)
    there = bench.things(spec.run_name)
    bench.delete("pods", f"{spec.run_name}-2", gracePeriodSeconds="0")
    bench.delete("networkpolicies", spec.run_name)
    bench.new_engine().launch(spec)
    now = bench.things(spec.run_name)
    assert len(now) == 5
    assert len(set(now) & set(there)) == 3, "the Secret and the other two pods"
    bench.running(spec)
    bench.delete("secrets", spec.run_name)
    bench.gone(spec)


def test_what_is_of_others_is_not_adopted(bench: KubeBench) -> None:
    spec = bench.spec()
    bench.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": spec.run_name}})
    with pytest.raises(EngineUnreachable, match=rf"the secret {bench.namespace}/{spec.run_name} is there, of another"):
        bench.engine.launch(spec)
    bench.engine.stop(spec.run_name, NOW)
    assert bench.get("secrets", spec.run_name), "nor deleted"
    bench.delete("secrets", spec.run_name)

    foreign = bench.spec(job_id="another")
    bench.create(objects.secret("kube", foreign))
    with pytest.raises(EngineUnreachable, match=r"of another job \(another, not job-1\)"):
        bench.engine.launch(spec)
    bench.delete("secrets", spec.run_name)

    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{spec.run_name}-1"},
        "spec": {"containers": [{"name": "x", "image": "x"}], "nodeSelector": {"none": "such"}},
    }
    bench.create(pod)
    with pytest.raises(EngineUnreachable, match=r"the pod .* is there, of another installation"):
        bench.engine.launch(spec)


@together
def test_a_secret_that_is_being_deleted_is_not_adopted(bench: KubeBench) -> None:
    spec = bench.spec()
    held = objects.secret("kube", spec)
    held["metadata"]["finalizers"] = ["weft.test/held"]
    bench.create(held)
    bench.delete("secrets", spec.run_name)
    with pytest.raises(EngineUnreachable, match="of an earlier try is still being deleted"):
        bench.engine.launch(spec)
    bench.patch("secrets", spec.run_name, {"metadata": {"finalizers": None}})
    until(lambda: not bench.get("secrets", spec.run_name), PATIENCE)
    bench.engine.launch(spec)
    bench.running(spec)


@together
def test_a_pod_that_is_created_after_the_stop_is_collected(bench: KubeBench) -> None:
    """A request that was stuck somewhere, while its attempt was stopped."""
    spec = bench.spec(cpus=64)
    bench.engine.launch(spec)
    secret = bench.get("secrets", spec.run_name)
    assert secret is not None
    bench.engine.stop(spec.run_name, NOW)
    bench.gone(spec)
    late = objects.pod("kube", samples.settings(), "weft", spec, 0, secret)
    bench.create(late)
    bench.gone(spec)


@together
def test_a_quota_is_waited_for_and_nothing_is_half_started(bench: KubeBench) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "2"}},
    }
    bench.create(quota)
    until(lambda: (bench.get("resourcequotas", "small") or {}).get("status", {}).get("used"), PATIENCE)
    spec = bench.spec(learners=3)
    with pytest.raises(EngineUnreachable, match="waiting for quota on engine kube: exceeded quota: small"):
        bench.engine.launch(spec)
    bench.gone(spec)
    bench.delete("resourcequotas", "small")

    def launched() -> bool:
        try:
            bench.engine.launch(spec)
        except EngineUnreachable:
            return False
        return True

    until(launched, PATIENCE)
    bench.running(spec)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"placement": Placement(priority_class="no-such")}, "no PriorityClass with name no-such was found"),
        ({"placement": Placement(node_selector={"a b": "c"})}, "spec.nodeSelector: Invalid value"),
        ({"extra": {"no/such/name": 1.0}}, "Invalid value"),
        ({"memory": 1 << 30}, "maximum memory usage per Container is 512Mi"),
    ],
    ids=["priority class", "node selector", "resource", "limit range"],
)
def test_what_the_server_never_takes_is_refused(bench: KubeBench, changes: dict[str, Any], words: str) -> None:
    limit = {"type": "Container", "max": {"memory": "512Mi"}}
    bench.create(
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [limit]}},
    )
    spec = bench.spec(learners=2, **changes)
    with pytest.raises(LaunchRefused, match=words) as refused:
        bench.engine.launch(spec)
    assert refused.value.code == "S101"
    assert spec.run_name not in str(refused.value), "names that mean nothing to a user"
    bench.engine.stop(spec.run_name, NOW)
    bench.gone(spec)


# --- namespaces ---------------------------------------------------------------------------------------------------


@together
def test_a_namespace_for_each_project(bench: KubeBench) -> None:
    template = f"{bench.namespace}-{{project}}"
    engine = bench.new_engine(namespace=template, create_namespaces=True)
    specs = [bench.spec(run_name=f"weft-job-{p}-1", project_id=p, job_id=f"job-{p}") for p in ("prj-a", "prj-b")]
    try:
        for spec in specs:
            engine.launch(spec)
        for spec in specs:
            bench.running(spec, engine)
        namespace = bench.kube.get("namespaces", f"{bench.namespace}-prj-a", "")
        assert namespace
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert len(bench.things(specs[0].run_name, f"{bench.namespace}-prj-a")) == 3
        # Another engine process does not know the namespace, and the call does not name it.
        bench.new_engine(namespace=template).stop(specs[0].run_name, NOW)
        engine.stop(specs[1].run_name, NOW)
        until(lambda: not engine.observe(), PATIENCE)
    finally:
        for spec in specs:
            bench.kube.delete("namespaces", f"{bench.namespace}-{spec.project_id}")


def test_a_missing_namespace(bench: KubeBench) -> None:
    engine = bench.new_engine(namespace="no-such-namespace-of-weft")
    spec = bench.spec()
    with pytest.raises(EngineUnreachable, match=r"there is no namespace no-such-namespace-of-weft; make it, or let"):
        engine.launch(spec)
    assert engine.observe() == {}
    engine.stop(spec.run_name, NOW)


def test_names_that_can_not_be(bench: KubeBench) -> None:
    for name in ("", "Weft-1", "a/b", "x" * 59, "a.b"):
        with pytest.raises(ValueError, match="no name for a run"):
            bench.engine.launch(bench.spec(run_name=name))
        with pytest.raises(ValueError, match="no name for a run"):
            bench.engine.stop(name, NOW)


def test_gpu_types_are_the_nodes_own(bench: KubeBench) -> None:
    engine = bench.new_engine(gpu_type_label="weft.test/gpu")
    node = bench.kube.nodes[0]
    bench.kube.label(node, gpu="Tesla-V100-SXM2-16GB")
    try:
        asked = {}
        for n, wanted in enumerate(("v100", "h100")):
            spec = bench.spec(run_name=f"weft-gpu-{n}-1", gpus=1, gpu_type=wanted)
            engine.launch(spec)
            pod = bench.get("pods", f"{spec.run_name}-1")
            assert pod is not None
            terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            asked[wanted] = terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"]
            engine.stop(spec.run_name, NOW)
        assert asked == {"v100": ["Tesla-V100-SXM2-16GB"], "h100": ["h100"]}
    finally:
        bench.kube.label(node, gpu=None)


def test_what_can_not_be_scheduled_says_why(bench: KubeBench) -> None:
    nowhere = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "weft.test/nowhere", "operator": "Exists"}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nowhere}}
    large = bench.spec(cpus=64)
    choosy = bench.spec(run_name="weft-choosy-1", placement=Placement(affinity=affinity))
    for spec in (large, choosy):
        bench.engine.launch(spec)
    for spec, why in (
        (large, "unschedulable: no node has 64 CPUs free ("),
        (choosy, "unschedulable: no node fits (2 nodes: 2 not of the kind asked for)"),
    ):
        seen = bench.wait(spec, lambda learner: learner.reason)
        assert seen.state is LearnerState.STARTING
        assert seen.reason.startswith(why)
