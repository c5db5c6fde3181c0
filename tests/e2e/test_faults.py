"""kill -9 of parts of the platform in the middle of a running job: it completes, once, with every line once."""

from __future__ import annotations

from collections.abc import Callable

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


@pytest.mark.parametrize("part", ["worker", "api", "redis", "postgres", "s3"])
def test_kill_9_of_a_part(own_stack: Callable[..., Stack], part: str) -> None:
    stack = own_stack()
    job = start(stack)
    before = stack.parts()[part]
    stack.kill(part)
    eventually(lambda: stack.parts()[part] not in (before, None), f"{part} restarted")
    check_ran_once(stack, job)


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
