"""Elastic jobs: a learner is killed in mid-training and the others go on without it; another one joins later."""

from __future__ import annotations

import os
import re
import shutil
import signal
import zipfile
from pathlib import Path

import psutil
import pytest
from tests.e2e.stack import PROGRAMS, REPOSITORY, Stack, alive, follow_to, lines, manifest

import weft

STEPS = 20
"""The least number of steps of a job; most continue until the test has seen the awaited event."""


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
    follow_to(job, with_(2))
    return job


def with_(size: int) -> str:
    """What is said of a step that so many did."""
    return rf"^step (\d+) with {size}$"


def newest_step(job: weft.Job, size: int) -> int:
    """The number of the newest step that so many did."""
    return max(int(found[1]) for line in lines(job) if (found := re.match(with_(size), line)))


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


def wait_for_event(job: weft.Job, text: str) -> None:
    assert any(text in event.message for event in job._jobs.follow_events(job.id)), job.refresh().reason


def lost(learner: int, how: str = "killed by signal 9 (SIGKILL)") -> str:
    return f"learner {learner} was lost ({how}): training goes on with 1 of 2"


def joined(learner: int) -> str:
    return f"learner {learner} joined: training goes on with 2 learners"


def check_result(stack: Stack, job: weft.Job, folder: Path) -> None:
    job = job.wait(timeout=900, check=False)
    assert job.state == "COMPLETED", job.reason
    assert [attempt.outcome for attempt in job.attempts] == ["SUCCEEDED"], "no retry was needed"
    with zipfile.ZipFile(job.download_trained_model(folder / "model.zip")) as archive:
        (model,) = (name for name in archive.namelist() if name.endswith("model.txt"))
        found = re.fullmatch(r"(\d+) steps, sum (\d+)\n", archive.read(model).decode())
    assert found
    assert found[1] == found[2], "no step was lost or done twice"
    assert int(found[1]) >= STEPS
    assert stack.learners() == []


# The first job of an image builds its environment.
def test_torchrun_goes_on_with_fewer_and_then_with_more(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = start(stack, "pytorch", f"exec python elastic_plain.py {STEPS} 0.1 1 {go}")
    agent(stack, 2).kill()
    wait_for_event(job, lost(2))
    wait_for_event(job, joined(3))
    follow_to(job, "^round 3: rank 0 of 2 starts", with_(2))
    go.touch()
    check_result(stack, job, tmp_path)
    rounds = [line for line in lines(job) if line.startswith("weft: round")]
    assert rounds[0] == "weft: round 1: rank 0 of 2 (learners 1, 2)"
    assert "learner 2 was lost" in rounds[1]
    assert "from the last checkpoint (1 file)" in rounds[1]
    assert "learner 3 joined" in rounds[2]
    shown = stack.weft("show", job.id).stdout
    assert "round 3: 2 processes in 2 learners (1, 3); learner 3 joined" in shown


def test_torchrun_goes_on_when_only_the_leaders_process_is_killed(stack: Stack, tmp_path: Path) -> None:
    # What a killed process has written in its last seconds may be torn, so checkpoints are some seconds apart.
    go = tmp_path / "go"
    job = start(stack, "pytorch", f"exec python elastic_plain.py {STEPS} 0.1 30 {go}")
    follow_to(job, "^step 70 ")
    os.kill(worker(stack, 1).pid, signal.SIGKILL)
    follow_to(job, with_(1), learner=2)
    go.touch()
    wait_for_event(job, lost(1))
    [begin] = [line for line in lines(job, 2) if line.startswith("round 2: rank 0 of 1 starts at step")]
    assert int(begin.rsplit(" ", 1)[1]) in range(30, newest_step(job, 2) + 1, 30), "a checkpoint of the killed one"
    check_result(stack, job, tmp_path)


def test_a_learner_whose_program_fails_is_lost_and_its_peer_is_not(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    job = start(stack, "pytorch", f"exec python elastic_plain.py {2 * STEPS} 0.05 1 {go} {STEPS}")
    check_result(stack, job, tmp_path)
    [message] = [event.message for event in job.events() if "was lost" in event.message]
    assert message == lost(2, "exit code 1")
    assert "ValueError: a bug" in lines(job, 2)


def test_horovods_learners_come_and_go(stack: Stack, tmp_path: Path) -> None:
    """In one job, as each process imports PyTorch."""
    go, blind = tmp_path / "go", tmp_path / "blind"
    job = start(stack, "horovod", f"exec python elastic_horovod.py {STEPS} 0.15 {go} {blind}")

    # Those that survive keep their memory, and another one joins.
    before = worker(stack, 1).pid
    agent(stack, 2).kill()
    wait_for_event(job, lost(2))
    wait_for_event(job, joined(3))
    follow_to(job, with_(2), with_(1), with_(2))
    assert worker(stack, 1).pid == before, "it was never started anew"

    # With the first learner Horovod's driver is lost: the other goes on from the checkpoint.
    blind.touch()
    agent(stack, 1).kill()
    wait_for_event(job, lost(1))
    follow_to(job, with_(1), learner=3)

    # A learner joins a training that never looks for a change of its gang: it has no part in it, and all end well.
    wait_for_event(job, joined(4))
    go.touch()
    check_result(stack, job, tmp_path)
    assert "weft: training has ended before this learner could join it" in lines(job, 4)


@pytest.mark.parametrize(
    ("name", "program"), [("mnist-torchrun", "train.py"), ("mnist-horovod-pytorch", "train_elastic.py")]
)
def test_an_example_loses_a_learner_and_gets_another_one(
    stack: Stack, digits: Path, tmp_path: Path, name: str, program: str
) -> None:
    folder, go = tmp_path / "code", tmp_path / "go"
    shutil.copytree(REPOSITORY / "examples" / name, folder)
    shutil.copy2(PROGRAMS / "braked.py", folder)
    # Two minutes of waiting between its epochs: a learner can join in the middle of them on any machine.
    command = f"python braked.py pathlib.Path.replace {go} 10 {program} --epochs 12"
    changes = {"framework.command": command, "elastic.max": "2", "checkpoint.every": "1s"}
    job = stack.client.train(folder / "manifest-elastic.yml", folder, overrides=changes)
    follow_to(job, "epoch 2/12  loss")
    agent(stack, 2).kill()
    wait_for_event(job, lost(2))
    wait_for_event(job, joined(3))
    go.touch()
    job = job.wait(timeout=600, check=False)
    assert job.state == "COMPLETED", job.reason
    assert [attempt.outcome for attempt in job.attempts] == ["SUCCEEDED"], "no retry was needed"
    log = lines(job)
    assert any(line.startswith("epoch 12/12  loss") for line in log)
    (tested,) = (line for line in log if line.startswith("test accuracy"))
    assert float(tested.split()[2]) >= 0.95
    assert any(file.path.endswith("model.pt") for file in job.files())
