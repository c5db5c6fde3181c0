"""kill -9 of parts of the platform in the middle of a running job: it completes, once, with every line once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.e2e.stack import Stack, alive, eventually, lines, manifest, saw

import weft


def start(stack: Stack, go: Path) -> weft.Job:
    """A job that runs, and ends soon after the file ``go`` is there."""
    job = stack.train(manifest(f"python count.py 20 0.05 {go}", learners=2))
    eventually(saw(job, "line 10"), "the job under way", 120)
    return job


def check_complete(said: list[str]) -> None:
    """Every line of count.py once."""
    assert said == [*(f"line {number}" for number in range(len(said) - 1)), "end"]


def check_ran_once(stack: Stack, job: weft.Job) -> None:
    job = job.wait(timeout=180)
    assert [attempt.outcome for attempt in job.attempts] == ["SUCCEEDED"]
    for learner in (1, 2):
        check_complete(lines(job, learner))
    assert stack.learners() == []


@pytest.mark.parametrize("part", ["worker", "redis", "s3"])
def test_kill_9_of_a_part(own_stack: Callable[..., Stack], tmp_path: Path, part: str) -> None:
    stack = own_stack()
    job = start(stack, tmp_path / "go")
    before = stack.parts()[part]
    stack.kill(part)
    eventually(lambda: stack.parts()[part] not in (before, None), f"{part} restarted")
    (tmp_path / "go").touch()
    check_ran_once(stack, job)


def test_kill_9_of_api_worker_and_postgres_at_once(own_stack: Callable[..., Stack], tmp_path: Path) -> None:
    """Then the log moves to S3, and is the same there."""
    stack = own_stack(WEFT_TIMINGS__LOG_SETTLE="0")
    job = start(stack, tmp_path / "go")
    parts = ("postgres", "api", "worker")
    before = stack.parts()
    for part in parts:
        os.kill(before[part], signal.SIGKILL)
    eventually(lambda: all(stack.parts()[part] not in (before[part], None) for part in parts), "all restarted")
    (tmp_path / "go").touch()
    check_ran_once(stack, job)
    service = stack.home / "logs"
    eventually(lambda: any("archived the log" in log.read_text() for log in service.glob("worker*")), "archived", 180)
    check_ran_once(stack, job)


def test_what_a_killed_learner_had_not_sent_yet_is_there(own_stack: Callable[..., Stack], tmp_path: Path) -> None:
    stack, go = own_stack(), tmp_path / "go"
    job = stack.train(manifest(f"python count.py 20 0.05 {go}", retries=1))
    eventually(saw(job, "line 5"), "the job under way", 120)
    api = psutil.Process(stack.parts()["api"])
    api.suspend()
    try:
        learners = stack.learners()
        [agent] = alive(
            learners, lambda process: "weft_trainer" in process.cmdline() and process.parent() not in learners
        )
        [written] = stack.home.glob("runs/*/learner-0/agent/training-log.txt")
        already = written.read_text().count("\n")
        eventually(lambda: written.read_text().count("\n") > already + 5, "lines that the API has not heard of")
        known = written.read_text().rpartition("\n")[0].splitlines()
        agent.kill()
    finally:
        api.resume()
    eventually(lambda: job.refresh().attempt == 2, "another attempt", 120)
    go.touch()
    job = job.wait(timeout=180)
    assert [attempt.outcome for attempt in job.attempts][-1] == "SUCCEEDED"
    assert len(job.attempts) == 2
    first = [line.text for line in job.logs() if line.attempt == 1]
    assert first[: len(known)] == known
    assert first == [f"line {number}" for number in range(len(first))]
    check_complete([line.text for line in job.logs() if line.attempt == 2])


def test_kill_9_of_weft_up_itself_and_up_again(own_stack: Callable[..., Stack], tmp_path: Path) -> None:
    stack = own_stack()
    job = start(stack, tmp_path / "go")
    stack.kill("weft")
    stack.up()
    (tmp_path / "go").touch()
    check_ran_once(stack, job)


def test_an_orderly_down_interrupts_and_the_next_up_goes_on_from_the_checkpoint(
    own_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack, go = own_stack(), tmp_path / "go"
    job = stack.train(manifest("exec python steps.py 20 0.1", env={"HOLD": str(go)}))
    eventually(saw(job, "step 5"), "the job under way", 120)
    stack.down()
    eventually(lambda: not stack.processes(), f"left behind: {stack.processes()}")
    go.touch()
    stack.up()
    job = stack.client.jobs.get(job.id).wait(timeout=120)
    assert [attempt.outcome for attempt in job.attempts] == ["INTERRUPTED", "SUCCEEDED"]
    assert job.failures == 0
    starts = [line for line in lines(job) if line.startswith("attempt")]
    assert int(starts[1].rsplit(" ", 1)[1]) >= 5
