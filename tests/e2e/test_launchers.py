"""The launchers: learners are one gang, each process with its rank and device, and they reach each other."""

from __future__ import annotations

import pytest
from tests.e2e.stack import Stack, lines, manifest


# The first job of an image builds its environment.
def test_two_learners_that_start_torchrun_themselves_are_one_gang(stack: Stack) -> None:
    framework = {"name": "pytorch", "command": "torchrun sum_torch.py"}
    job = stack.train(manifest("", learners=2, cpus=1, memory="3Gb", framework=framework))
    job = job.wait(timeout=800, check=False)
    assert job.state == "COMPLETED", job.reason
    for learner in (1, 2):
        assert f"learner {learner}: rank {learner - 1} of 2, sum 3" in lines(job, learner)


@pytest.mark.parametrize(
    ("framework", "launcher"),
    [
        ({"name": "horovod", "version": "0.28.1-torch2.13"}, "horovod"),
        ({"name": "pytorch"}, "torchrun"),
        ({"name": "python"}, "none"),
    ],
    ids=["horovod", "torchrun", "none"],
)
def test_rank_world_size_and_device_are_right(stack: Stack, framework: dict[str, str], launcher: str) -> None:
    """Two learners of two GPUs. Other numbers: tests/trainer/launchers; TensorFlow, alone and with Horovod:
    test_examples.py."""
    asked = framework | {"launcher": launcher, "command": f"python gang.py {launcher}"}
    job = stack.train(manifest("", learners=2, gpus=2, memory="2Gb", framework=asked)).wait(timeout=800, check=False)
    shown = "\n".join(f"[{line.learner}] {line.text}" for line in job.logs())
    assert job.state == "COMPLETED", f"{job.reason}\n{shown}"
    slots = 2 if launcher in ("horovod", "torchrun") else 1
    for learner in (1, 2):
        told = [line[line.index("place") :] for line in lines(job, learner) if "place " in line]
        ranks = range((learner - 1) * slots, learner * slots)
        assert sorted(line.partition(", device")[0] for line in told) == [
            f"place {rank} of {2 * slots}: learner {learner}, local rank {rank % slots}" for rank in ranks
        ]
        assert not any(line.endswith("device cpu") for line in told), told
