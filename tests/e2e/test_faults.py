"""kill -9 of parts of the platform in the middle of a running job: it completes, once, with every line once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psutil
import pytest
from tests.e2e.stack import Stack, eventually, lines, manifest, saw

import weft

LINES = 120


def start(stack: Stack) -> weft.Job:
    job = stack.train(manifest(f"python count.py {LINES} 0.05", learners=2))
    eventually(saw(job, "line 10"), "the job under way", 120)
    return job


def check_ran_once(stack: Stack, job: weft.Job) -> None:
    job = job.wait(timeout=180)
    assert [attempt.outcome for attempt in job.attempts] == ["SUCCEEDED"]
    for learner in (1, 2):
        assert lines(job, learner) == [f"line {number}" for number in range(LINES)]
    assert stack.learners() == []


@pytest.mark.parametrize("part", ["worker", "redis", "s3"])
def test_kill_9_of_a_part(own_stack: Callable[..., Stack], part: str) -> None:
    stack = own_stack()
    job = start(stack)
    before = stack.parts()[part]
    stack.kill(part)
    eventually(lambda: stack.parts()[part] not in (before, None), f"{part} restarted")
    check_ran_once(stack, job)


def test_kill_9_of_api_worker_and_postgres_at_once(own_stack: Callable[..., Stack]) -> None:
    """Then the log moves to S3, and is the same there."""
    stack = own_stack(WEFT_TIMINGS__LOG_SETTLE="0")
    job = start(stack)
    parts = ("postgres", "api", "worker")
    before = stack.parts()
    for part in parts:
        os.kill(before[part], signal.SIGKILL)
    eventually(lambda: all(stack.parts()[part] not in (before[part], None) for part in parts), "all restarted")
    check_ran_once(stack, job)
    service = stack.home / "logs"
    eventually(lambda: any("archived the log" in one.read_text() for one in service.glob("worker*")), "the log in S3")
    check_ran_once(stack, job)


def test_what_a_killed_learner_had_not_sent_yet_is_there(own_stack: Callable[..., Stack]) -> None:
    stack = own_stack()
    job = stack.train(manifest(f"python count.py {LINES} 0.05", retries=1))
    eventually(saw(job, "line 5"), "the job under way", 120)
    api = psutil.Process(stack.parts()["api"])
    api.suspend()
    try:
        learners = stack.learners()
        [agent] = [one for one in learners if "weft_trainer" in one.cmdline() and one.parent() not in learners]
        [written] = stack.home.glob("runs/*/learner-0/agent/training-log.txt")
        already = written.read_text().count("\n")
        eventually(lambda: written.read_text().count("\n") > already + 5, "lines that the API has not heard of")
        known = written.read_text().splitlines()
        agent.kill()
    finally:
        api.resume()
    job = job.wait(timeout=180)
    assert [attempt.outcome for attempt in job.attempts][-1] == "SUCCEEDED"
    assert len(job.attempts) == 2
    first = [line.text for line in job.logs() if line.attempt == 1]
    assert first[: len(known)] == known
    assert first == [f"line {number}" for number in range(len(first))]
    assert [line.text for line in job.logs() if line.attempt == 2] == [f"line {number}" for number in range(LINES)]


def test_kill_9_of_weft_up_itself_and_up_again(own_stack: Callable[..., Stack]) -> None:
    stack = own_stack()
    job = start(stack)
    stack.kill("weft")
    stack.up()
    check_ran_once(stack, job)


def test_an_orderly_down_interrupts_and_the_next_up_goes_on_from_the_checkpoint(
    own_stack: Callable[..., Stack],
) -> None:
    stack = own_stack()
    job = stack.train(manifest("exec python steps.py 250 0.1"))  # outlasts `weft down` also on a busy machine
    eventually(saw(job, "step 5"), "the job under way", 120)
    stack.down()
    assert stack.processes() == []
    stack.up()
    job = stack.client.jobs.get(job.id).wait(timeout=120)
    assert [attempt.outcome for attempt in job.attempts] == ["INTERRUPTED", "SUCCEEDED"]
    assert job.failures == 0
    starts = [line for line in lines(job) if line.startswith("attempt")]
    assert int(starts[1].rsplit(" ", 1)[1]) >= 5
