"""Jobs that share the cluster: what fits starts, a gang starts as a whole, and a project takes its guarantee back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.e2e.stack import PROGRAMS, eventually, lines, manifest
from tests.kubernetes.cluster import asked_cpus
from tests.kubernetes.stack import (
    ENGINE,
    RESUMES,
    KubeStack,
    messages,
    outcomes,
    starts,
    steps,
    under_way,
    when,
)

import weft

JOBS = 6
PASSWORD = "correct-horse-battery-7"


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
        most = max(most, sum(asked_cpus(pod) >= each for pod in ours))
        states = [listed.state for listed in client.jobs.list(q="many-")]
        assert "FAILED" not in states
        return states.count("COMPLETED") == JOBS

    eventually(done, "all completed", 600)
    for number, job in enumerate(jobs):
        assert outcomes(job.refresh()) == ["SUCCEEDED"]
        assert lines(job) == [f"job {number}"]
    assert most > 1


@pytest.fixture(scope="module")
def share(on_kube: KubeStack) -> float:
    """CPUs of a learner, of which each node has room for one."""
    return min(on_kube.cluster.cpus().values()) * 0.6


@pytest.fixture(scope="module")
def borrower(on_kube: KubeStack, share: float) -> weft.Job:
    """A job that trains on both nodes."""
    job = on_kube.train(RESUMES, learners=2, cpus=share, checkpoint={"every": "60s"}, retries=0)
    under_way(on_kube, job)
    return job


def test_a_gang_that_does_not_fit_now_says_for_what_it_waits(
    on_kube: KubeStack, share: float, borrower: weft.Job
) -> None:
    gang = on_kube.train("true", cpus=share, learners=2)
    gang = when(gang, lambda now: "waiting for" in now.reason and now.reason != "waiting for admission", "a reason")
    assert gang.state == "QUEUED"
    assert on_kube.left(gang) == [], "all or nothing"
    gang.halt()
    assert gang.wait(timeout=900, check=False).state == "HALTED"
    assert borrower.refresh().state == "PROCESSING"


def test_a_guarantee_is_taken_back_from_a_borrower(on_kube: KubeStack, share: float, borrower: weft.Job) -> None:
    """The job that makes room goes on from its checkpoint."""
    stack = on_kube.stack
    stack.client.users.create("iris", PASSWORD)
    stack.weft("projects", "create", "vision", "--owner", "iris", "--allow-untrusted")
    stack.client.projects.set_share("vision", guaranteed={"cpus": share})
    vision = weft.Client(stack.client.url, weft.Client(stack.client.url).login("iris", PASSWORD, "vision"))
    done = max(steps(borrower, 1))
    wanted = manifest("python count.py 1 0", engine=ENGINE, cpus=share, memory="256 MiB", data_stores=[])
    owner = vision.train(wanted, PROGRAMS).wait(timeout=900)
    assert outcomes(owner.refresh()) == ["SUCCEEDED"]
    assert "to save and make room" in messages(owner)
    job = borrower.wait(timeout=900)
    assert outcomes(job) == ["INTERRUPTED", "SUCCEEDED"]
    assert job.failures == 0
    assert job.attempts[0].reason == f"preempted by {owner.id} of project vision"
    assert starts(job)[1] >= done, "with the checkpoint that SIGTERM gave it time for"
    vision.jobs.get(owner.id).delete()
