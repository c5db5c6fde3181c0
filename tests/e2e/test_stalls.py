"""Jobs that make no progress get a warning with their stacks; jobs that are only quiet are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

from tests.e2e.conftest import SETTINGS
from tests.e2e.stack import Stack, eventually, lines, manifest

import weft

AFTER = 8
NO_OUTPUT = float(SETTINGS["WEFT_TIMINGS__NO_OUTPUT"])


def start(
    stack: Stack, what: str, learners: int = 2, stall: Mapping[str, str] | None = None, **changes: object
) -> weft.Job:
    stall = {"after": f"{AFTER}s", "action": "warn", **(stall or {})}
    command = f"exec python quiet.py {what}"
    return stack.train(manifest(command, name=what, learners=learners, cpus=0.2, stall=stall, **changes))


def trained(job: weft.Job) -> float:
    """Seconds since it started."""
    started = job.refresh().started_at
    return (datetime.now(UTC) - started).total_seconds() if started else 0.0


def warnings(job: weft.Job, words: str) -> list[weft.Event]:
    return [event for event in job.events() if event.kind == "warning" and words in event.message]


def stacks(job: weft.Job, learner: int, attempt: int = 1) -> list[str]:
    return [line.text for line in job.logs(learner=learner, attempt=attempt) if line.text.startswith("weft: ")]


def shows_where_it_hangs(job: weft.Job, learner: int, attempt: int = 1) -> bool:
    return any("wait_for_a_peer_that_never_comes" in line for line in stacks(job, learner, attempt))


def test_stalled_jobs_are_told_of_and_quiet_ones_are_not(stack: Stack) -> None:
    deadlocked = start(stack, "deadlock")
    ended = start(stack, "deadlock", stall={"action": "end"}, retries=1)
    ignored = start(stack, "deadlock", learners=1, stall={"action": "ignore"})
    quiet = {what: start(stack, what, learners=1) for what in ("burn", "log")}
    quiet["write"] = start(stack, "write", learners=1, stall={"action": "ignore"})  # a write to memory is no step

    [warning] = eventually(lambda: warnings(deadlocked, f"no progress for {AFTER}s"), "a warning")
    assert "learner 1 since" in warning.message
    assert "learner 2 since" in warning.message
    assert [entry["learner"] for entry in warning.data["learners"]] == [1, 2]
    for learner in (1, 2):
        eventually(partial(shows_where_it_hangs, deadlocked, learner), f"the stack of learner {learner}")
    [verdict] = eventually(lambda: warnings(deadlocked, "verdict: "), "a verdict")
    assert "all ranks are in socket.accept (quiet.py:" in verdict.message
    assert [rank["learner"] for rank in verdict.data["ranks"]] == [1, 2]
    condition = deadlocked.refresh().condition or ""
    assert condition.startswith("no progress since ")
    assert condition.endswith(verdict.message.removeprefix("verdict"))

    for what in ("burn", "log"):
        eventually(partial(warnings, quiet[what], "has written nothing"), f"a warning of {what}")
    eventually(lambda: trained(quiet["write"]) > 2 * NO_OUTPUT, "that it trains for so long")
    for what, job in quiet.items():
        assert job.refresh().state == "PROCESSING", what
        job.halt(grace_seconds=0)
        assert warnings(job, "no progress") == [], what
        assert stacks(job, 1) == [], what
    assert [len(warnings(job, "has written nothing")) for job in quiet.values()] == [1, 1, 0]

    # The stall is neither forgotten nor reported again.
    stack.kill_and_await("worker", "api")

    done = ended.wait(timeout=900)
    assert [attempt.outcome for attempt in done.attempts] == ["FAILED", "SUCCEEDED"]
    assert done.attempts[0].reason.startswith("no progress since ")
    assert "stall.action" in done.attempts[0].reason
    assert "socket.accept (quiet.py:" in done.attempts[0].reason
    assert done.failures == 1
    assert shows_where_it_hangs(ended, 1)
    assert shows_where_it_hangs(ended, 2)

    assert len(warnings(deadlocked, "no progress")) == 1
    for learner in (1, 2):
        assert sum("wait_for_a_peer_that_never_comes" in line for line in stacks(deadlocked, learner)) == 1
    assert len(warnings(deadlocked, "has written nothing")) == 1, "also of a job that is stalled"
    assert warnings(ignored, "no progress") == []
    assert ignored.refresh().condition is None
    for job in (deadlocked, ignored):
        job.halt(grace_seconds=0)
    assert "deadlock begins" in lines(deadlocked, 2)
