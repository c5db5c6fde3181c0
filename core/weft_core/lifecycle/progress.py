"""Whether a running gang makes progress: pure functions of a view. docs/stalls.md tells users of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from weft_core.lifecycle.actions import GANG_GRACE, Notice, Settle
from weft_core.lifecycle.states import JobState, LearnerPhase, Outcome
from weft_core.lifecycle.view import AttemptView, LearnerView, View
from weft_core.words import duration

_BEATS = 5
"""Heartbeats from the warning to the end of a stalled attempt: for the stacks to reach the log."""
ENDED_CODE = 124
"""Exit code of an attempt that was ended as stalled: what timeout(1) says."""
_NAMED = 8  # learners that a message names


def check_progress(view: View, attempt: AttemptView) -> Notice | Settle | None:
    """What there is to say or do about a gang's progress, if anything."""
    # Workers that a program has launched wait for it most of the time; they have a limit of their own.
    if view.job.state is not JobState.PROCESSING or view.job.keepalive:
        return None
    return _stall(view, attempt) or _no_output(view, attempt)


def stall_condition(attempt: AttemptView | None) -> str | None:
    """The job's condition while its attempt is stalled."""
    if attempt is None or attempt.stalled_since is None:
        return None
    return f"no progress since {_clock(attempt.stalled_since)}"


def _no_output(view: View, attempt: AttemptView) -> Notice | None:
    limit = view.timings.no_output
    if not limit or attempt.no_output_at or view.job.state_since is None or view.since(view.job.state_since) <= limit:
        return None
    # Unknown (an agent that is older, or silent) is not nothing.
    if any(one.wrote is not False for one in view.members):
        return None
    return Notice(
        "no_output",
        f"has been training for {duration(limit)} and has written nothing into RESULT_DIR or CHECKPOINT_DIR: what it "
        "writes elsewhere is lost at its end, and a retry begins anew",
    )


def _stall(view: View, attempt: AttemptView) -> Notice | Settle | None:
    asked = view.job.manifest.get("stall") or {}
    limit, action = asked.get("after_seconds", view.timings.stall), asked.get("action", "warn")
    if not limit or action == "ignore":
        return None
    # Those that have ended well wait for these.
    running = [one for one in view.members if one.phase is LearnerPhase.PROCESSING]
    since = _idle_since(view, running)
    if attempt.stalled_at is None:
        if since is None or any(_idle_for(one) < limit for one in running):
            return None
        return Notice("stalled", _words(running, limit), since, {"learners": _idle(running), "action": action})
    if any(_heard(view, one) and _idle_for(one) < limit for one in running):
        return Notice("moving", "")
    if action == "end" and view.since(attempt.stalled_at) > _BEATS * view.timings.heartbeat:
        assert attempt.stalled_since is not None
        reason = (
            f"no progress since {_clock(attempt.stalled_since)}: all learners were idle for {duration(limit)}; "
            "ended, as its manifest's stall.action says (the stacks of its processes are in the log)"
        )
        return Settle(Outcome.FAILED, reason, view.grace(GANG_GRACE), "C201", ENDED_CODE)
    return None


def _idle_since(view: View, running: Sequence[LearnerView]) -> datetime | None:
    """When the last of them became idle; None: one is busy, or nobody knows."""
    if not running or not all(_heard(view, one) for one in running):
        return None
    since = [one.idle_since for one in running if one.idle_since is not None]
    return max(since) if len(since) == len(running) else None


def _idle_for(learner: LearnerView) -> float:
    """Seconds until its last heartbeat: what it has done since then, while the API was away perhaps, nobody knows."""
    if learner.idle_since is None or learner.heartbeat_at is None:
        return 0.0
    return (learner.heartbeat_at - learner.idle_since).total_seconds()


def _heard(view: View, learner: LearnerView) -> bool:
    return learner.heartbeat_at is not None and view.since(learner.heartbeat_at) <= view.timings.silence


def _words(running: Sequence[LearnerView], limit: float) -> str:
    named = [
        f"learner {one.rank + 1} since {_clock(one.idle_since)}"
        for one in running[:_NAMED]
        if one.idle_since is not None
    ]
    more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
    return (
        f"no progress for {duration(limit)}: nothing logged, and no work of CPU or GPU ({', '.join(named)}{more}); "
        "the stacks of its processes are in the log"
    )


def _idle(running: Sequence[LearnerView]) -> list[dict[str, Any]]:
    return [
        {"learner": one.rank + 1, "idle_since": one.idle_since.isoformat() if one.idle_since else None}
        for one in running
    ]


def _clock(moment: datetime) -> str:
    # To the second: it is reckoned anew from each heartbeat.
    return f"{(moment + timedelta(seconds=0.5)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
