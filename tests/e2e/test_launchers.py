"""The launchers of PyTorch and TensorFlow: two learners are one gang, each with its rank, and they reach each other.

Horovod's is shown by its examples.
"""

from __future__ import annotations

import pytest
from tests.e2e.stack import Stack, lines, manifest


# The first job of an image builds its environment.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("framework", "command"),
    [
        ("pytorch", "python sum_torch.py"),
        ("pytorch", "torchrun sum_torch.py"),
        ("tensorflow", "python sum_tensorflow.py"),
    ],
)
def test_two_learners_are_one_gang(stack: Stack, framework: str, command: str) -> None:
    job = stack.train(manifest("", learners=2, cpus=1, memory="3Gb", framework={"name": framework, "command": command}))
    job = job.wait(timeout=800, check=False)
    assert job.state == "COMPLETED", job.reason
    for learner in (1, 2):
        assert f"learner {learner}: rank {learner - 1} of 2, sum 3" in lines(job, learner)
