"""Examples as they are, on real digits: they train, and what they store can be loaded.

Of the epochs that a manifest asks for, the digits need half."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from tests.e2e.stack import PROGRAMS, REPOSITORY, Stack, alive, eventually, follow_to, lines, series
from tests.environments import python_of

import weft

EXAMPLES = REPOSITORY / "examples"
EPOCHS = 6


def check_trained(job: weft.Job) -> None:
    """All learners have taken part, and what was trained is good and stored."""
    shown = "\n".join(f"[{line.learner}] {line.text}" for line in job.logs())
    assert job.state == "COMPLETED", f"{job.reason}\n{shown}"
    assert {line.learner for line in job.logs()} == set(range(1, job.learners + 1))
    final = [line for line in lines(job, 1) if "accuracy" in line][-1]
    accuracy = float(final.split("accuracy")[1].split()[0].strip(":=,%"))
    assert accuracy >= 0.95, shown
    assert job.files(), "nothing was stored"


def points(stack: Stack, job: weft.Job) -> dict[tuple[str, int], int]:
    """How many points the job's last attempt has reported, by the metric's name and the learner."""
    return {of: metric["points"] for of, metric in series(stack, job).items()}


# The first run of an image builds its environment; Horovod is compiled twice (PyTorch, TensorFlow).
@pytest.mark.parametrize("name", ["mnist-horovod-tensorflow", "mnist-tensorflow-mirrored"])
def test_example(stack: Stack, digits: Path, name: str) -> None:
    """Those of PyTorch are killed below, and trained in test_elastic.py and test_local_run.py."""
    folder = EXAMPLES / name
    wanted = yaml.safe_load((folder / "manifest.yml").read_text())
    changes = {"framework.command": f"{wanted['framework']['command']} --epochs {EPOCHS}"}
    job = stack.client.train(folder / "manifest.yml", folder, overrides=changes).wait(timeout=1400, check=False)
    assert job.learners == wanted["learners"]
    check_trained(job)
    if name == "mnist-horovod-tensorflow":
        assert [f"rank {rank} of 2 on cpu" in lines(job, rank + 1) for rank in (0, 1)] == [True, True]
    else:
        found = points(stack, job)
        assert found["train/epoch_loss", 1] == found["train/epoch_accuracy", 1] == EPOCHS


def train_and_kill(
    stack: Stack,
    work: Path,
    example: str,
    manifest: str,
    program: str,
    stored: Mapping[int, int],
    save: str = "pathlib.Path.replace",
) -> weft.Job:
    """The job, ended, of an example whose second learner was killed after the first epoch, when that was ``stored``: by
    which learners, and in how many files of each."""
    folder, go = work / "code", work / "go"
    shutil.copytree(EXAMPLES / example, folder)
    shutil.copy2(PROGRAMS / "braked.py", folder)
    words = [program, "--epochs", str(EPOCHS)]
    command = f"python braked.py {save} {go} 600 {' '.join(words)}"
    changes = {"framework.command": command, "checkpoint.every": "1s"}
    job = stack.client.train(folder / manifest, folder, overrides=changes)
    follow_to(job, f"^epoch 1/{EPOCHS}  loss")
    eventually(
        lambda: {(checkpoint.learner, checkpoint.files) for checkpoint in job.checkpoints()} >= stored.items(),
        "the first checkpoint",
    )
    [victim, *_] = alive(
        stack.learners(),
        lambda process: process.cmdline()[-len(words) :] == words and process.environ()["LEARNER_ID"] == "2",
    )
    victim.kill()
    go.touch()
    job = job.wait(timeout=1200)
    assert [attempt.outcome for attempt in job.attempts] == ["FAILED", "SUCCEEDED"]
    assert job.attempts[0].reason.startswith("learner 2 was killed by signal 9 (SIGKILL)")
    log = list(job.logs(learner=1))
    assert max(epoch(line.text) for line in log if line.attempt == 1) == 1
    assert [epoch(line.text) for line in log if line.attempt == 2 and epoch(line.text)] == list(range(2, EPOCHS + 1))
    [said] = [line.text for line in log if line.text.startswith("resuming after epoch")]
    assert said.split()[3] == "1"
    check_trained(job)
    return job


def epoch(line: str) -> int:
    """The epoch that a line tells the end of, or 0."""
    found = re.match(r"epoch (\d+)/\d+  loss", line)
    return int(found[1]) if found else 0


def test_a_horovod_learner_that_is_killed_costs_an_epoch_at_most(stack: Stack, digits: Path, tmp_path: Path) -> None:
    """And the model that is stored can be loaded and evaluated."""
    job = train_and_kill(stack, tmp_path, "mnist-horovod-pytorch", "manifest.yml", "train.py", {1: 1})
    found = points(stack, job)  # of the second attempt, which goes on with epoch 2
    assert found["train/loss", 1] == found["train/accuracy", 1] == EPOCHS - 1
    assert found["test/accuracy", 1] == 1
    stack.weft("download", job.id, "--trainedmodel", "--unpack", "-o", str(tmp_path / "model"))
    done = subprocess.run(
        [python_of("horovod"), EXAMPLES / "mnist-horovod-pytorch/evaluate.py", tmp_path / "model", digits],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout.split("accuracy:")[1].split()[0]) >= 0.95


def test_fsdp_goes_on_from_its_learners_shards(stack: Stack, digits: Path, tmp_path: Path) -> None:
    """A learner is killed; later another job goes on from the shards with another number of learners."""
    save, program = "torch.distributed.checkpoint.save", "train_fsdp.py"
    job = train_and_kill(stack, tmp_path, "mnist-torchrun", "manifest-fsdp.yml", program, {1: 2, 2: 1}, save)
    for learner in (1, 2):
        assert f"rank {learner - 1} keeps 52,933 of 105,866 weights" in lines(job, learner)
    assert any(file.path.endswith("model.pt") for file in job.files())

    alone = {"learners": "1", "framework.command": f"python {program} --epochs {EPOCHS + 1}"}
    again = job.rerun(alone, from_checkpoint=True).wait(timeout=1200)
    assert f"resuming after epoch {EPOCHS} from epoch-{EPOCHS:04}" in lines(again)
    assert "rank 0 keeps 105,866 of 105,866 weights" in lines(again)
    assert sum(epoch(line) > 0 for line in lines(again)) == 1


def test_one_program_for_one_worker_and_for_several(stack: Stack, digits: Path, tmp_path: Path) -> None:
    """MultiWorkerMirroredStrategy goes on after its last epoch when a learner is killed; alone, MirroredStrategy."""
    example, manifest, program = "mnist-tensorflow-mirrored", "manifest-workers.yml", "train_workers.py"
    job = train_and_kill(stack, tmp_path, example, manifest, program, {1: 1})
    for learner in (1, 2):
        assert f"learner {learner}: MultiWorkerMirroredStrategy, 2 replicas in all" in lines(job, learner)

    folder = EXAMPLES / example
    alone = stack.client.train(
        folder / manifest, folder, overrides={"learners": "1", "framework.command": f"python {program} --epochs 1"}
    ).wait(timeout=1200)
    assert "learner 1: MirroredStrategy, 1 replicas in all" in lines(alone)
