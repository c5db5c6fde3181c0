"""The four examples, as they are, on real handwritten digits: they train, and what they store can be loaded."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.e2e.stack import REPOSITORY, Stack, alive, eventually, lines, saw, series

EXAMPLES = REPOSITORY / "examples"
METRICS = {
    "mnist-horovod-pytorch": {("train/loss", 1): 12, ("train/accuracy", 1): 12, ("test/accuracy", 1): 1},
    "mnist-torchrun": {("train/loss", 1): 12, ("train/accuracy", 1): 12, ("test/accuracy", 1): 1},
    "mnist-tensorflow-mirrored": {("train/epoch_loss", 1): 12, ("train/epoch_accuracy", 1): 12},
}
"""How many points examples report."""


@pytest.fixture(scope="session")
def digits(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MNIST's four files, also in the embedded S3."""
    folder = tmp_path_factory.mktemp("mnist")
    subprocess.run([sys.executable, str(EXAMPLES / "data/digits.py"), str(folder)], check=True)
    stack.weft("data", "put", str(folder), "default:mnist-data")
    stack.weft("data", "create", "default:mnist-models")
    return folder


# The first run of an image builds its environment; Horovod is compiled twice (PyTorch, TensorFlow).
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "name", ["mnist-horovod-pytorch", "mnist-horovod-tensorflow", "mnist-torchrun", "mnist-tensorflow-mirrored"]
)
def test_example(stack: Stack, digits: Path, tmp_path: Path, name: str) -> None:
    folder = EXAMPLES / name
    job = stack.client.train(folder / "manifest.yml", folder).wait(timeout=1400, check=False)
    shown = "\n".join(f"[{line.learner}] {line.text}" for line in job.logs())
    assert job.state == "COMPLETED", f"{job.reason}\n{shown}"
    wanted = yaml.safe_load((folder / "manifest.yml").read_text())
    assert {line.learner for line in job.logs()} == set(range(1, wanted["learners"] + 1))
    final = [line for line in lines(job, 1) if "accuracy" in line][-1]
    accuracy = float(final.split("accuracy")[1].split()[0].strip(":=,%"))
    assert accuracy >= 0.95, shown
    assert job.files(), "nothing was stored"
    found = {(name, learner): metric["points"] for (name, learner), metric in series(stack, job).items()}
    assert found.items() >= METRICS.get(name, {}).items()


def _epoch(line: str) -> int:
    """The epoch that a line tells the end of, or 0."""
    found = re.match(r"epoch (\d+)/\d+  loss", line)
    return int(found[1]) if found else 0


def _kill_the_second_learner(stack: Stack, program: str) -> None:
    """SIGKILL for its ``python program --epochs …``."""
    [victim, *_] = alive(
        stack.learners(),
        lambda process: process.cmdline()[-3:-1] == [program, "--epochs"] and process.environ()["LEARNER_ID"] == "2",
    )
    victim.kill()


@pytest.mark.timeout(1500)
def test_a_horovod_learner_that_is_killed_costs_an_epoch_at_most(stack: Stack, digits: Path) -> None:
    folder = EXAMPLES / "mnist-horovod-pytorch"
    # The first attempt never ends by itself.
    command = "python train.py --epochs $([ $WEFT_ATTEMPT = 1 ] && echo 10000 || echo 16)"
    changes = {"framework.command": command, "checkpoint.every": "1s"}
    job = stack.client.train(folder / "manifest.yml", folder, overrides=changes)
    eventually(saw(job, "epoch 3/10000  loss"), "training under way", 1200)
    _kill_the_second_learner(stack, "train.py")
    job = job.wait(timeout=1200)
    assert [attempt.outcome for attempt in job.attempts] == ["FAILED", "SUCCEEDED"]
    assert job.attempts[0].reason.startswith("learner 2 was killed by signal 9 (SIGKILL)")
    log = list(job.logs(learner=1))
    trained = max(_epoch(line.text) for line in log if line.attempt == 1 and _epoch(line.text))
    [resumed] = [line.text for line in log if line.attempt == 2 and line.text.startswith("resuming after epoch")]
    assert int(resumed.split()[3]) in (trained - 1, trained)
    final = [line for line in lines(job, 1) if line.startswith("test accuracy")][-1]
    assert float(final.split()[2]) >= 0.95


@pytest.mark.timeout(1500)
def test_fsdp_goes_on_from_its_learners_shards(stack: Stack, digits: Path) -> None:
    """A learner is killed; later another job goes on from the shards with another number of learners."""
    folder = EXAMPLES / "mnist-torchrun"
    command = "python train_fsdp.py --epochs"
    until = "$([ $WEFT_ATTEMPT = 1 ] && echo 10000 || echo 24)"  # the first attempt never ends by itself
    changes = {"framework.command": f"{command} {until}", "checkpoint.every": "1s"}
    job = stack.client.train(folder / "manifest-fsdp.yml", folder, overrides=changes)
    eventually(saw(job, "epoch 3/10000  loss"), "training under way", 1200)
    _kill_the_second_learner(stack, "train_fsdp.py")
    job = job.wait(timeout=1200)
    assert [attempt.outcome for attempt in job.attempts] == ["FAILED", "SUCCEEDED"]
    for learner in (1, 2):
        assert f"rank {learner - 1} keeps 52,933 of 105,866 weights" in lines(job, learner)
    log = list(job.logs(learner=1))
    trained = max(_epoch(line.text) for line in log if line.attempt == 1)
    [resumed] = [line.text for line in log if line.attempt == 2 and line.text.startswith("resuming after epoch")]
    assert 0 < int(resumed.split()[3]) <= trained
    assert float(next(line for line in reversed(lines(job, 1)) if line.startswith("test accuracy")).split()[2]) >= 0.95
    assert any(file.path.endswith("model.pt") for file in job.files())

    alone = {"learners": "1", "framework.command": f"{command} 25"}
    again = job.rerun(alone, from_checkpoint=True).wait(timeout=1200)
    assert "resuming after epoch 24 from epoch-0024" in lines(again)
    assert "rank 0 keeps 105,866 of 105,866 weights" in lines(again)
    assert sum(_epoch(line) > 0 for line in lines(again)) == 1


@pytest.mark.timeout(1500)
def test_one_program_for_one_worker_and_for_several(stack: Stack, digits: Path) -> None:
    """MultiWorkerMirroredStrategy goes on after its last epoch when a learner is killed; alone, MirroredStrategy."""
    folder = EXAMPLES / "mnist-tensorflow-mirrored"
    # The first attempt never ends by itself.
    command = "python train_workers.py --epochs $([ $WEFT_ATTEMPT = 1 ] && echo 10000 || echo 12)"
    changes = {"framework.command": command, "checkpoint.every": "1s"}
    job = stack.client.train(folder / "manifest-workers.yml", folder, overrides=changes)
    eventually(saw(job, "epoch 2/10000  loss"), "training under way", 1200)
    _kill_the_second_learner(stack, "train_workers.py")
    job = job.wait(timeout=1200)
    assert [attempt.outcome for attempt in job.attempts] == ["FAILED", "SUCCEEDED"]
    for learner in (1, 2):
        assert f"learner {learner}: MultiWorkerMirroredStrategy, 2 replicas in all" in lines(job, learner)
    log = list(job.logs(learner=1))
    trained = max(_epoch(line.text) for line in log if line.attempt == 1)
    [resumed] = [line.text for line in log if line.attempt == 2 and line.text.startswith("resuming after epoch")]
    assert 0 < int(resumed.split()[3]) <= trained
    assert float(next(line for line in reversed(lines(job, 1)) if line.startswith("test accuracy")).split()[2]) >= 0.95

    alone = stack.client.train(
        folder / "manifest-workers.yml",
        folder,
        overrides={"learners": "1", "framework.command": "python train_workers.py --epochs 1"},
    ).wait(timeout=1200)
    assert "learner 1: MirroredStrategy, 1 replicas in all" in lines(alone)


@pytest.mark.timeout(1500)
def test_the_stored_model_can_be_loaded_and_evaluated(stack: Stack, digits: Path, tmp_path: Path) -> None:
    job = next(listed for listed in stack.client.jobs.list(q="mnist-horovod-pytorch") if listed.state == "COMPLETED")
    stack.weft("download", job.id, "--trainedmodel", "--unpack", "-o", str(tmp_path / "model"))
    python = subprocess.run(
        [sys.executable, "-m", "weft_workers.environments", "python", "horovod"],
        env=stack.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    done = subprocess.run(
        [python, str(EXAMPLES / "mnist-horovod-pytorch/evaluate.py"), str(tmp_path / "model"), str(digits)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout.split("accuracy:")[1].split()[0]) >= 0.95
