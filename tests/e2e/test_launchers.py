"""The launchers: learners are one gang, each process with its rank and device, and they reach each other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.e2e.stack import PROGRAMS, Stack, lines, manifest, running


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


# --- one manifest, any number of learners and GPUs ---------------------------------------------------------------

SIZES = [(1, 0), (3, 1), (2, 2)]
"""Learners, and GPUs of each."""


@pytest.fixture(scope="module")
def pretend_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose engine hands out seven GPUs that are not there, and has room for all jobs of a test at once."""
    engine = {"type": "local", "cpus": 64, "gpus": 7, "memory": 64 << 30}
    with running(tmp_path_factory.mktemp("gpus") / "home", {"WEFT_ENGINES": json.dumps({"local": engine})}) as stack:
        yield stack


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("framework", "launcher"),
    [
        ({"name": "horovod", "version": "0.28.1-torch2.13"}, "horovod"),
        ({"name": "horovod", "version": "0.28.1-tf2.21"}, "horovod"),
        ({"name": "pytorch"}, "torchrun"),
        ({"name": "tensorflow"}, "tensorflow"),
        ({"name": "python"}, "none"),
    ],
    ids=["horovod-torch", "horovod-tensorflow", "torchrun", "tensorflow", "none"],
)
def test_rank_world_size_and_device_are_right(pretend_gpus: Stack, framework: dict[str, str], launcher: str) -> None:
    asked = framework | {"launcher": launcher, "command": f"python gang.py {launcher}"}
    each = manifest("", cpus=0.5, memory="2Gb", framework=asked)
    jobs = {
        (learners, gpus): pretend_gpus.client.train(
            each, PROGRAMS, overrides={"learners": str(learners), "gpus": str(gpus)}
        )
        for learners, gpus in SIZES
    }
    for (learners, gpus), job in jobs.items():
        job = job.wait(timeout=800, check=False)
        shown = "\n".join(f"[{line.learner}] {line.text}" for line in job.logs())
        assert job.state == "COMPLETED", f"{learners} × {gpus}: {job.reason}\n{shown}"
        slots = max(1, gpus) if launcher in ("horovod", "torchrun") else 1
        for learner in range(1, learners + 1):
            told = [line[line.index("place") :] for line in lines(job, learner) if "place " in line]
            ranks = range((learner - 1) * slots, learner * slots)
            assert sorted(line.partition(", device")[0] for line in told) == [
                f"place {rank} of {learners * slots}: learner {learner}, local rank {rank % slots}" for rank in ranks
            ]
            assert all(line.endswith("device cpu") == (gpus == 0) for line in told), told
