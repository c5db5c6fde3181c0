"""Fifty small jobs at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.e2e.stack import eventually, lines
from tests.kubernetes.stack import KubeStack, outcomes

JOBS, CPUS = 50, 0.25


def test_fifty_small_jobs_at_once(on_kube: KubeStack) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda n: on_kube.train(f"echo job {n}", cpus=CPUS, name=f"many-{n}"), range(JOBS)))
    most, unplaced = 0, set()

    def done() -> bool:
        nonlocal most
        pods = on_kube.cluster.items("pods", on_kube.namespace, "weft.dev/job")
        living = [one for one in pods if one["status"].get("phase") in ("Pending", "Running")]
        most = max(most, len(living))
        for pod in living:
            for condition in pod["status"].get("conditions", []):
                if condition.get("reason") == "Unschedulable":
                    unplaced.add(pod["metadata"]["name"])
        states = [one["state"] for one in on_kube.stack.json("list", "--all", "-q", "many-")]
        assert "FAILED" not in states
        return states.count("COMPLETED") == JOBS

    eventually(done, "all completed", 280)
    for number, job in enumerate(jobs):
        assert outcomes(job.refresh()) == ["SUCCEEDED"]
        assert lines(job) == [f"job {number}"]
    assert most > 1
    # Measured at the end: what tests before this one have left was still there at the beginning.
    eventually(lambda: most * CPUS <= sum(on_kube.cluster.free_cpus().values()), "no more than the nodes have room for")
    assert unplaced == set(), "admission starts what fits"
