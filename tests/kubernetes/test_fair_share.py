"""On a cluster, a project takes its guarantee back, and the job that makes room goes on from its checkpoint."""

from __future__ import annotations

from tests.e2e.stack import PROGRAMS, manifest
from tests.kubernetes.stack import ENGINE, RESUMES, KubeStack, messages, outcomes, starts, steps
from tests.kubernetes.test_disruptions import under_way

from weft import Client

PASSWORD = "correct-horse-battery-7"


def test_a_guarantee_is_taken_back_from_a_borrower(on_kube: KubeStack) -> None:
    stack, each = on_kube.stack, min(on_kube.cluster.cpus().values()) * 0.6  # one learner on each node
    stack.client.users.create("iris", PASSWORD)
    stack.weft("projects", "create", "vision", "--owner", "iris", "--allow-untrusted")
    stack.client.projects.set_share("vision", guaranteed={"cpus": each})
    vision = Client(stack.client.url, Client(stack.client.url).login("iris", PASSWORD, "vision"))
    borrower = on_kube.train(RESUMES, learners=2, cpus=each, checkpoint={"every": "60s"}, retries=0)
    under_way(on_kube, borrower)
    done = max(steps(borrower, 1))
    wanted = manifest("python count.py 1 0", engine=ENGINE, cpus=each, memory="256 MiB", data_stores=[])
    owner = vision.train(wanted, PROGRAMS).wait(timeout=300)
    assert outcomes(owner.refresh()) == ["SUCCEEDED"]
    assert "to save and make room" in messages(owner)
    borrower = borrower.wait(timeout=300)
    assert outcomes(borrower) == ["INTERRUPTED", "SUCCEEDED"]
    assert borrower.failures == 0
    assert borrower.attempts[0].reason == f"preempted by {owner.id} of project vision"
    assert starts(borrower)[1] >= done, "with the checkpoint that SIGTERM gave it time for"
    vision.jobs.get(owner.id).delete()
