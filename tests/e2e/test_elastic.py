"""Elastic jobs: a learner is killed in mid-training and the others go on without it; another one joins later."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.e2e.stack import PROGRAMS, REPOSITORY, Stack, alive, eventually, lines, manifest, running, saw

import weft

STEPS = 20
"""That jobs train at least; most of them go on until the test has seen what it waits for."""


def start(stack: Stack, framework: str, command: str) -> weft.Job:
    job = stack.train(
        manifest(
            "",
            learners=2,
            elastic={"min": 1, "max": 2},
            memory="2Gb",
            checkpoint={"every": "1s"},
            framework={"name": framework, "command": command},
        )
    )
    trains(job, "with 2")
    return job


def trains(job: weft.Job, how: str, learner: int = 1, seconds: float = 500) -> int:
    """Wait for a step that was done so; its number."""

    def newest() -> int:
        steps = [line.split() for line in lines(job, learner) if line.startswith("step") and line.endswith(how)]
        return int(steps[-1][1]) if steps else 0

    found: int = eventually(newest, f"a step {how}", seconds)
    return found


def agent(stack: Stack, learner: int) -> psutil.Process:
    found = alive(
        stack.learners(),
        lambda process: process.cwd().endswith(f"learner-{learner - 1}") and "weft_trainer" in process.cmdline(),
    )
    (first,) = (
        process for process in found if process.ppid() not in {other.pid for other in found}
    )  # the other is its watchdog
    return first


def worker(stack: Stack, learner: int) -> psutil.Process:
    """The user's own process."""
    return alive(
        agent(stack, learner).children(recursive=True),
        lambda process: "python" in process.name() and any(word.startswith("elastic_") for word in process.cmdline()),
    )[0]


def said(job: weft.Job, text: str) -> bool:
    return any(text in event.message for event in job.events())


def check_result(stack: Stack, job: weft.Job, folder: Path) -> None:
    job = job.wait(timeout=300, check=False)
    assert job.state == "COMPLETED", job.reason
    assert [attempt.outcome for attempt in job.attempts] == ["SUCCEEDED"], "no retry was needed"
    with zipfile.ZipFile(job.download_trained_model(folder / "model.zip")) as archive:
        (model,) = (name for name in archive.namelist() if name.endswith("model.txt"))
        found = re.fullmatch(r"(\d+) steps, sum (\d+)\n", archive.read(model).decode())
    assert found
    assert found[1] == found[2], "no step was lost or done twice"
    assert int(found[1]) >= STEPS
    assert stack.learners() == []


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that gives elastic jobs new learners soon."""
    with running(tmp_path_factory.mktemp("elastic") / "home", {"WEFT_TIMINGS__ELASTIC_COOLDOWN": "4"}) as started:
        yield started


# The first job of an image builds its environment.
@pytest.mark.timeout(900)
def test_torchrun_goes_on_with_fewer_and_then_with_more(quick: Stack, tmp_path: Path) -> None:
    job = start(quick, "pytorch", f"exec python elastic_torch.py {STEPS} 0.1 3")
    agent(quick, 2).kill()
    lost = "learner 2 was lost (killed by signal 9 (SIGKILL)): training goes on with 1 of 2"
    eventually(lambda: said(job, lost), "a learner is lost")
    eventually(lambda: said(job, "learner 3 joined: training goes on with 2 learners"), "a learner joins")
    eventually(saw(job, "round 3: rank 0 of 2 starts"), "training with two")
    rounds = [line for line in lines(job) if line.startswith("weft: round")]
    assert rounds[0] == "weft: round 1: rank 0 of 2 (learners 1, 2)"
    assert "learner 2 was lost" in rounds[1]
    assert "from the last checkpoint (1 file)" in rounds[1]
    assert "learner 3 joined" in rounds[2]
    shown = quick.weft("show", job.id).stdout
    assert "round 3: 2 processes in 2 learners (1, 3); learner 3 joined" in shown
    check_result(quick, job, tmp_path)


@pytest.mark.timeout(900)
def test_torchrun_goes_on_when_only_the_leaders_process_is_killed(stack: Stack, tmp_path: Path) -> None:
    # What a killed process has written in its last seconds may be torn, so checkpoints are some seconds apart.
    go = tmp_path / "go"
    job = start(stack, "pytorch", f"exec python elastic_plain.py {STEPS} 0.1 30 {go}")
    eventually(saw(job, "step 70 "), "two checkpoints")
    os.kill(worker(stack, 1).pid, signal.SIGKILL)
    trains(job, "with 1", learner=2)
    go.touch()
    [begin] = [line for line in lines(job, 2) if line.startswith("round 2: rank 0 of 1 starts at step")]
    assert int(begin.rsplit(" ", 1)[1]) in range(30, trains(job, "with 2") + 1, 30), "a checkpoint of the killed one"
    assert said(job, "learner 1 was lost (killed by signal 9 (SIGKILL)): training goes on with 1 of 2")
    check_result(stack, job, tmp_path)


@pytest.mark.timeout(900)
def test_a_learner_whose_program_fails_is_lost_and_its_peer_is_not(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    job = start(stack, "pytorch", f"exec python elastic_plain.py {2 * STEPS} 0.05 1 {go} {STEPS}")
    check_result(stack, job, tmp_path)
    (lost,) = (event for event in job.events() if "was lost" in event.message)
    assert lost.message == "learner 2 was lost (exit code 1): training goes on with 1 of 2"
    assert "ValueError: a bug" in lines(job, 2)


@pytest.mark.timeout(900)
def test_horovod_survivors_keep_their_memory_and_another_one_joins(quick: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = start(quick, "horovod", f"exec python elastic_horovod.py {STEPS} 0.15 {go}")
    before = worker(quick, 1).pid
    agent(quick, 2).kill()
    trains(job, "with 1")
    assert said(job, "learner 2 was lost (killed by signal 9 (SIGKILL)): training goes on with 1 of 2")
    eventually(lambda: said(job, "learner 3 joined: training goes on with 2 learners"), "a learner joins")
    eventually(
        lambda: [line for line in lines(job) if line.startswith("step")][-1].endswith("with 2"), "training again"
    )
    assert worker(quick, 1).pid == before, "it was never started anew"
    go.touch()
    check_result(quick, job, tmp_path)


@pytest.mark.timeout(900)
def test_horovod_ends_though_a_learner_joins_that_has_no_part_in_it_any_more(quick: Stack, tmp_path: Path) -> None:
    # It never looks for a change of its gang, as it commits nothing.
    go = tmp_path / "go"
    job = start(quick, "horovod", f"exec python elastic_horovod.py {STEPS} 0.15 {go} 1000000")
    agent(quick, 2).kill()
    eventually(lambda: said(job, "learner 3 joined: training goes on with 2 learners"), "a learner joins")
    go.touch()
    check_result(quick, job, tmp_path)
    assert "weft: training has ended before this learner could join it" in lines(job, 3)


@pytest.mark.timeout(900)
def test_horovod_goes_on_from_the_checkpoint_when_its_driver_is_lost(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = start(stack, "horovod", f"exec python elastic_horovod.py {STEPS} 0.1 {go}")
    agent(stack, 1).kill()
    trains(job, "with 1", learner=2)
    go.touch()
    assert said(job, "learner 1 was lost (killed by signal 9 (SIGKILL)): training goes on with 1 of 2")
    check_result(stack, job, tmp_path)


@pytest.fixture(scope="module")
def digits(quick: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the examples train on."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, str(REPOSITORY / "examples/data/digits.py"), str(folder)], check=True)
    quick.weft("data", "put", str(folder), "default:mnist-data")
    quick.weft("data", "create", "default:mnist-models")


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("name", "program"), [("mnist-torchrun", "train.py"), ("mnist-horovod-pytorch", "train_elastic.py")]
)
def test_an_example_loses_a_learner_and_gets_another_one(
    quick: Stack, digits: None, tmp_path: Path, name: str, program: str
) -> None:
    folder, go = tmp_path / "code", tmp_path / "go"
    shutil.copytree(REPOSITORY / "examples" / name, folder)
    shutil.copy2(PROGRAMS / "braked.py", folder)
    # Two minutes of waiting between its epochs: a learner can join in the middle of them on any machine.
    command = f"python braked.py {go} 10 {program} --epochs 12"
    changes = {"framework.command": command, "elastic.max": "2", "checkpoint.every": "1s"}
    job = quick.client.train(folder / "manifest-elastic.yml", folder, overrides=changes)
    eventually(saw(job, "epoch 2/12  loss"), "training under way", 1200)
    agent(quick, 2).kill()
    lost = "learner 2 was lost (killed by signal 9 (SIGKILL)): training goes on with 1 of 2"
    eventually(lambda: said(job, lost), "a learner is lost")
    eventually(lambda: said(job, "learner 3 joined: training goes on with 2 learners"), "a learner joins", 120)
    go.touch()
    job = job.wait(timeout=600, check=False)
    assert job.state == "COMPLETED", job.reason
    assert [attempt.outcome for attempt in job.attempts] == ["SUCCEEDED"], "no retry was needed"
    log = lines(job)
    assert any(line.startswith("epoch 12/12  loss") for line in log)
    (tested,) = (line for line in log if line.startswith("test accuracy"))
    assert float(tested.split()[2]) >= 0.95
    assert any(file.path.endswith("model.pt") for file in job.files())
