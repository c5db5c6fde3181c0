"""Whether a running gang makes progress: pure functions of a view. docs/stalls.md describes it for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from weft_core.hangs.report import Report
from weft_core.hangs.verdict import judge
from weft_core.lifecycle.actions import GANG_GRACE, Notice, Settle
from weft_core.lifecycle.states import JobState, LearnerPhase, Outcome
from weft_core.lifecycle.view import AttemptView, LearnerView, View
from weft_core.words import describe_exit, duration

_BEATS = 5
"""Heartbeats from the warning to the end of a stalled attempt: for the stacks to reach the log."""
_PATIENCE = 60.0
"""Seconds for the reports of all learners. Most come with the next heartbeat; a busy machine takes its time."""
ENDED_CODE = 124
"""Exit code of an attempt that was ended as stalled, as timeout(1) has it."""
_NAMED = 8  # learners that a message names


def check_progress(view: View, attempt: AttemptView) -> Notice | Settle | None:
    """What to report or do about a gang's progress, if anything."""
    # Learners that a program has launched wait for it most of the time; they have a limit of their own.
    if view.job.state is not JobState.PROCESSING or view.job.keepalive:
        return None
    return _stall(view, attempt) or _no_output(view, attempt)


def stall_condition(attempt: AttemptView | None) -> str | None:
    """The job's condition while its attempt is stalled."""
    if attempt is None or attempt.stalled_since is None:
        return None
    return f"no progress since {clock(attempt.stalled_since)}" + (f": {attempt.verdict}" if attempt.verdict else "")


def judge_stall(view: View, reports: Mapping[int, Mapping[str, Any] | None]) -> tuple[str, Notice]:
    """The verdict, '' if the reports show too little, and the warning with it.

    Args:
        view: of the job.
        reports: by rank, of the learners that have not been lost (``weft_core.hangs.report``).
    """
    ended = {
        member.rank: "" if member.exit_code is None else describe_exit(member.exit_code)
        for member in view.members
        if member.phase.order > LearnerPhase.PROCESSING.order
    }
    read = {rank: None if report is None else Report.model_validate(report) for rank, report in reports.items()}
    verdict = judge(read, {rank: how or "its program is over" for rank, how in ended.items()})
    if verdict is None:
        return "", Notice("judge", "")
    return verdict.text, Notice("judge", f"verdict: {verdict.text}", data=verdict.data)


def no_output_due(view: View) -> datetime | None:
    """When the warning that the gang has written nothing may first be due."""
    limit, since = view.timings.no_output, view.job.state_since
    if not limit or view.open is None or view.open.no_output_at or view.job.keepalive or since is None:
        return None
    due = since + timedelta(seconds=limit)
    # After this moment, it has written something, or its agents do not report that.
    return due if due >= view.now else None


def stall_due(view: View) -> datetime | None:
    """When the gang may first count as stalled: a learner that was busy at its last heartbeat became idle after it."""
    limit, action = _asked(view)
    if not limit or action == "ignore" or view.job.keepalive:
        return None
    since = [member.idle_since or member.heartbeat_at or member.started_at for member in _running(view)]
    known = [moment for moment in since if moment is not None]
    return max(known) + timedelta(seconds=limit) if known else None


def _no_output(view: View, attempt: AttemptView) -> Notice | None:
    limit = view.timings.no_output
    if not limit or attempt.no_output_at or view.job.state_since is None or view.since(view.job.state_since) <= limit:
        return None
    # An agent that is older or silent has not said that nothing was written.
    if any(member.wrote is not False for member in view.members):
        return None
    return Notice(
        "no_output",
        f"has been training for {duration(limit)} and has written nothing into its folder, RESULT_DIR or "
        "CHECKPOINT_DIR: what it writes elsewhere is lost at its end, and a retry begins anew",
    )


def _stall(view: View, attempt: AttemptView) -> Notice | Settle | None:
    limit, action = _asked(view)
    if not limit or action == "ignore":
        return None
    running = _running(view)
    since = _idle_since(view, running)
    if attempt.stalled_at is None:
        if since is None or any(_idle_for(learner) < limit for learner in running):
            return None
        return Notice("stalled", _words(running, limit), since, {"learners": _idle(running), "action": action})
    if any(_heard(view, learner) and _idle_for(learner) < limit for learner in running):
        return Notice("moving", "")
    waited = view.since(attempt.stalled_at)
    if attempt.verdict is None and (_all_reported(attempt.stalled_at, running) or waited > _PATIENCE):
        return Notice("judge", "")
    if action in ("end", "fail") and waited > _BEATS * view.timings.heartbeat and attempt.verdict is not None:
        assert attempt.stalled_since is not None
        verdict = f"{attempt.verdict}; " if attempt.verdict else ""
        reason = (
            f"no progress since {clock(attempt.stalled_since)}: {verdict}all learners were idle for "
            f"{duration(limit)}; ended, as its manifest's stall.action says (the stacks of its processes are in the "
            "log)"
        )
        # Without an exit code, an attempt is not retried.
        code = ENDED_CODE if action == "end" else None
        return Settle(Outcome.FAILED, reason, view.grace(GANG_GRACE), "C201", code)
    return None


def _all_reported(stalled_at: datetime, running: Sequence[LearnerView]) -> bool:
    return all(learner.stacks_at is not None and learner.stacks_at >= stalled_at for learner in running)


def _asked(view: View) -> tuple[float, str]:
    """The limit in seconds, and what is to be done."""
    asked = view.job.manifest.get("stall") or {}
    return asked.get("after_seconds", view.timings.stall), asked.get("action", "warn")


def _running(view: View) -> list[LearnerView]:
    """The learners that those that have ended well wait for."""
    return [member for member in view.members if member.phase is LearnerPhase.PROCESSING]


def _idle_since(view: View, running: Sequence[LearnerView]) -> datetime | None:
    """When the last of them became idle; None: a learner is busy, or that is unknown."""
    if not running or not all(_heard(view, learner) for learner in running):
        return None
    since = [learner.idle_since for learner in running if learner.idle_since is not None]
    return max(since) if len(since) == len(running) else None


def _idle_for(learner: LearnerView) -> float:
    """Seconds until its last heartbeat. What it has done since then is unknown: the API may have been away."""
    if learner.idle_since is None or learner.heartbeat_at is None:
        return 0.0
    return (learner.heartbeat_at - learner.idle_since).total_seconds()


def _heard(view: View, learner: LearnerView) -> bool:
    return learner.heartbeat_at is not None and view.since(learner.heartbeat_at) <= view.timings.silence


def _words(running: Sequence[LearnerView], limit: float) -> str:
    named = [
        f"learner {learner.rank + 1} since {clock(learner.idle_since)}"
        for learner in running[:_NAMED]
        if learner.idle_since is not None
    ]
    more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
    return (
        f"no progress for {duration(limit)}: nothing logged, and no work of CPU or GPU ({', '.join(named)}{more}); "
        "the stacks of its processes are in the log"
    )


def _idle(running: Sequence[LearnerView]) -> list[dict[str, Any]]:
    return [
        {"learner": learner.rank + 1, "idle_since": learner.idle_since.isoformat() if learner.idle_since else None}
        for learner in running
    ]


def clock(moment: datetime) -> str:
    # Rounded to the second, because each heartbeat computes it anew.
    return f"{(moment + timedelta(seconds=0.5)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
