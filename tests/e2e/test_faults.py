"""kill -9 of parts of the platform in the middle of a running job: it completes, once, with every line once."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
from tests.e2e.stack import Stack, alive, eventually, follow_to, lines, manifest

import weft


def start(stack: Stack, go: Path) -> weft.Job:
    """A job that runs, and ends soon after the file ``go`` is there."""
    job = stack.train(manifest(f"python count.py 20 0.05 {go}", learners=2))
    follow_to(job, "^line 10$")
    return job


def written(stack: Stack, job: weft.Job) -> Path:
    """The file to which the agent of learner 1 writes each line before it sends it."""
    [found] = stack.home.glob(f"runs/*{job.id}*/learner-0/agent/training-log.txt")
    return found


def goes_on(stack: Stack, job: weft.Job) -> None:
    """Wait for a line that the job has not written yet."""
    follow_to(job, f"^line {written(stack, job).read_text().count(chr(10))}$")


def check_complete(said: list[str]) -> None:
    """Every line of count.py once."""
    assert said == [*(f"line {number}" for number in range(len(said) - 1)), "end"]


def check_ran_once(stack: Stack, job: weft.Job) -> None:
    job = job.wait(timeout=900)
    assert [attempt.outcome for attempt in job.attempts] == ["SUCCEEDED"]
    for learner in (1, 2):
        check_complete(lines(job, learner))
    assert stack.learners() == []


def test_kill_9_of_parts_one_after_another_and_at_once(stack: Stack, tmp_path: Path) -> None:
    """At the end the log moves to S3, and is the same there."""
    job = start(stack, tmp_path / "go")
    for parts in (("worker",), ("redis",), ("s3",), ("postgres", "api", "worker")):
        stack.kill_and_await(*parts)
        goes_on(stack, job)
    (tmp_path / "go").touch()
    check_ran_once(stack, job)
    logs = stack.home / "logs"
    archived = f"{job.id}.*archived the log"
    eventually(
        lambda: any(re.search(archived, log.read_text()) for log in logs.glob("worker*")), "the log is archived", 180
    )
    check_ran_once(stack, job)


def test_what_a_killed_learner_had_not_sent_yet_is_there(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = stack.train(manifest(f"python count.py 20 0.05 {go}", retries=1))
    follow_to(job, "^line 5$")
    api = psutil.Process(stack.parts()["api"])
    api.suspend()
    try:
        learners = stack.learners()
        [agent] = alive(
            learners, lambda process: "weft_trainer" in process.cmdline() and process.parent() not in learners
        )
        file = written(stack, job)
        already = file.read_text().count("\n")
        eventually(lambda: file.read_text().count("\n") > already + 5, "lines that the API has not heard of")
        known = file.read_text().rpartition("\n")[0].splitlines()
        agent.kill()
    finally:
        api.resume()
    eventually(lambda: job.refresh().attempt == 2, "another attempt")
    go.touch()
    job = job.wait(timeout=900)
    assert [attempt.outcome for attempt in job.attempts][-1] == "SUCCEEDED"
    assert len(job.attempts) == 2
    first = [line.text for line in job.logs() if line.attempt == 1]
    assert first[: len(known)] == known
    assert first == [f"line {number}" for number in range(len(first))]
    check_complete([line.text for line in job.logs() if line.attempt == 2])


def test_kill_9_of_weft_up_itself_and_up_again(stack: Stack, tmp_path: Path) -> None:
    job = start(stack, tmp_path / "go")
    stack.kill("weft")
    stack.up()
    (tmp_path / "go").touch()
    check_ran_once(stack, job)
