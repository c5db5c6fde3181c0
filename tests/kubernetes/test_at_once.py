"""Many small jobs at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.e2e.stack import eventually, lines
from tests.kubernetes.cluster import asked_cpus
from tests.kubernetes.stack import KubeStack, outcomes

JOBS = 6


def test_many_small_jobs_at_once(on_kube: KubeStack) -> None:
    """All run, several at a time, and admission never starts what does not fit: of two nodes with room for two each
    it has to know what runs on which."""
    cpus = on_kube.cluster.cpus().values()
    there, each = sum(cpus), min(cpus) * 0.45
    client = on_kube.stack.client
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda n: on_kube.train(f"echo job {n}", cpus=each, name=f"many-{n}"), range(JOBS)))
    most = 0

    def done() -> bool:
        nonlocal most
        # One list shows one moment of the cluster. Pods that others have left there count; meanwhile they can only go.
        pods = on_kube.cluster.pods()
        ours = [pod for pod in pods if pod["metadata"]["namespace"] == on_kube.namespace and asked_cpus(pod)]
        placed = [pod for pod in pods if pod["spec"].get("nodeName") and pod not in ours]
        asked = sum(map(asked_cpus, [*ours, *placed]))
        assert asked <= there + 1e-6, f"{asked:g} of {there:g} CPUs, with {len(ours)} learners"
        most = max(most, len(ours))
        states = [listed.state for listed in client.jobs.list(q="many-")]
        assert "FAILED" not in states
        return states.count("COMPLETED") == JOBS

    eventually(done, "all completed", 600)
    for number, job in enumerate(jobs):
        assert outcomes(job.refresh()) == ["SUCCEEDED"]
        assert lines(job) == [f"job {number}"]
    assert most > 1
