"""A stop: its grace, the objects that outlive it, and deletions that are not Weft's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.workers.engines.kubernetes.bench import PATIENCE, SLOW, STUBBORN, KubeBench, together, until

from weft_core.engine import LearnerState

NOW = timedelta(0)
_WORKLOADS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "workloads.kueue.x-k8s.io"},
    "spec": {
        "group": "kueue.x-k8s.io",
        "names": {"plural": "workloads", "singular": "workload", "kind": "Workload"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


def deadline(bench: KubeBench, name: str) -> tuple[datetime, int] | None:
    """When a pod is to be killed, and its grace in seconds."""
    pod = bench.get("pods", name)
    metadata = pod["metadata"] if pod else {}
    ends = metadata.get("deletionTimestamp")
    return (datetime.fromisoformat(ends), metadata["deletionGracePeriodSeconds"]) if ends else None


@together
def test_one_stop_is_enough_and_its_ways_stay_open_until_the_last_pod_has_ended(bench: KubeBench) -> None:
    spec = bench.spec(SLOW, learners=2)
    bench.new_engine().launch(spec)
    bench.running(spec)
    bench.engine.stop(spec.run_name, timedelta(seconds=60))
    seen = bench.observe(spec)
    assert seen is not None
    assert [learner.state for learner in seen.learners.values()] == [LearnerState.RUNNING] * 2
    assert not any(learner.interrupted for learner in seen.learners.values())
    assert bench.get("secrets", spec.run_name) is None

    def ended() -> bool:
        policy = bench.get("networkpolicies", spec.run_name)  # asked first: who lives later lived then
        lives = [pod for pod in bench.kube.items("pods", bench.namespace) if pod["status"]["phase"] == "Running"]
        assert policy or not lives, "a living learner has lost its network policy"
        return not lives

    until(ended, PATIENCE)
    bench.gone(spec)


@together
def test_a_stop_again_never_lengthens_and_may_shorten(bench: KubeBench) -> None:
    spec = bench.spec(STUBBORN)
    bench.engine.launch(spec)
    bench.running(spec)
    name = f"{spec.run_name}-1"
    bench.engine.stop(spec.run_name, timedelta(seconds=40))
    first = deadline(bench, name)
    assert first is not None
    assert first[1] == 40
    left = first[0] - datetime.now(UTC)
    bench.engine.stop(spec.run_name, left)  # as the reconciler does, every second
    bench.new_engine().stop(spec.run_name, timedelta(seconds=500))
    assert deadline(bench, name) == first
    bench.engine.stop(spec.run_name, timedelta(seconds=5))
    shorter = deadline(bench, name)
    assert shorter is None or shorter[0] < first[0] - timedelta(seconds=20)
    bench.gone(spec)


@together
def test_a_drained_pod_is_interrupted(bench: KubeBench) -> None:
    """By the eviction API, as `kubectl drain` does it."""
    spec = bench.spec(SLOW, learners=2)
    bench.engine.launch(spec)
    bench.running(spec)
    name = f"{spec.run_name}-1"
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
    assert bench.kube.request("POST", f"api/v1/namespaces/{bench.namespace}/pods/{name}/eviction", eviction)

    def first() -> LearnerState | None:
        seen = bench.observe(spec)
        learner = seen.learners[0] if seen else None
        return learner.state if learner and learner.interrupted else None

    assert until(first, PATIENCE)
    until(lambda: first() is LearnerState.EXITED, PATIENCE)
    until(lambda: bench.get("pods", name) is None, PATIENCE)
    seen = bench.observe(spec)
    assert seen is not None
    assert seen.learners[0].state is LearnerState.EXITED, "also when the object is gone"
    assert seen.learners[0].interrupted
    assert seen.learners[1].state is LearnerState.RUNNING
    assert not seen.learners[1].interrupted
    bench.engine.stop(spec.run_name, NOW)
    bench.gone(spec)


@together
def test_a_pod_that_is_removed_at_once_is_interrupted_for_who_saw_it(bench: KubeBench) -> None:
    spec = bench.spec()
    bench.engine.launch(spec)
    bench.running(spec)
    name = f"{spec.run_name}-1"
    bench.delete("pods", name, gracePeriodSeconds="0")
    learner = bench.exited(spec)
    assert learner.interrupted
    assert learner.reason.startswith("its pod was deleted")
    late = bench.observe(spec, bench.new_engine())
    assert late is not None
    assert late.learners == {}, "who did not see it says that it is absent"
    bench.engine.launch(spec)
    bench.running(spec)
    bench.engine.stop(spec.run_name, NOW)
    bench.gone(spec)


@together
def test_what_is_left_of_an_attempt_without_pods_is_seen_and_stopped(bench: KubeBench) -> None:
    spec = bench.spec()
    bench.new_engine().launch(spec)
    bench.delete("pods", f"{spec.run_name}-1", gracePeriodSeconds="0")
    seen = until(lambda: bench.observe(spec, bench.new_engine()), PATIENCE)
    assert seen.learners == {}
    bench.engine.stop(spec.run_name, NOW)
    bench.gone(spec)


@together
def test_kueue_lets_go_of_pods_that_never_ran(bench: KubeBench) -> None:
    """Kueue is played by the test: a finalizer on the pods, which goes with the group's Workload."""
    bench.kube.create(_WORKLOADS)
    until(lambda: bench.kube.request("GET", "apis/kueue.x-k8s.io/v1beta1/workloads"), PATIENCE)  # else: 404
    engine = bench.new_engine(queue="team")
    spec = bench.spec(cpus=64, learners=2)
    try:
        engine.launch(spec)
        workload = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": spec.run_name}}
        bench.create(workload)
        for n in (1, 2):
            bench.patch("pods", f"{spec.run_name}-{n}", {"metadata": {"finalizers": ["kueue.x-k8s.io/managed"]}})
        engine.stop(spec.run_name, timedelta(seconds=60))
        assert bench.exited(spec, engine).exit_code is None
        engine.stop(spec.run_name, timedelta(seconds=60))
        assert bench.get("workloads", spec.run_name) is None
        for n in (1, 2):
            bench.patch("pods", f"{spec.run_name}-{n}", {"metadata": {"finalizers": None}})
        bench.gone(spec)
    finally:
        bench.kube.delete("customresourcedefinitions", "workloads.kueue.x-k8s.io")
