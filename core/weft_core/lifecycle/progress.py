"""Whether a running gang makes progress: pure functions of a view. docs/stalls.md describes it for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from weft_core.hangs.report import Report
from weft_core.hangs.stillness import hangs
from weft_core.hangs.verdict import judge
from weft_core.lifecycle.actions import GANG_GRACE, Notice, Settle
from weft_core.lifecycle.states import JobState, LearnerPhase, Outcome
from weft_core.lifecycle.view import AttemptView, LearnerView, View
from weft_core.words import describe_exit, duration

_PAUSES = 3.0
"""A gang may show no step for this many times as long as it ever has."""
_BEATS = 5
"""Heartbeats from the warning to the end of a stalled attempt: for the stacks to reach the log."""
_PATIENCE = 60.0
"""Seconds for the reports of all learners. Most come with the next heartbeat; a busy machine takes its time."""
LOOKED = "several looks show all ranks at the same place, where they wait for each other"
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
    verdict = judge(_read(reports), _ended(view))
    if verdict is None:
        return "", Notice("judge", "")
    return verdict.text, Notice("judge", f"verdict: {verdict.text}", data=verdict.data)


def judge_looks(view: View, reports: Mapping[int, Mapping[str, Any] | None]) -> Notice:
    """Whether a gang that shows no step hangs, by what the agents have seen: ``stalled``, or ``moving``."""
    running = _running(view)
    limit, action = _asked(view)
    stepped = any(_still_for(member) < limit for member in running)  # while the agents looked
    if not running or stepped or not hangs(_read(reports), _ended(view)):
        return Notice("moving", "")
    since = max(member.still_since for member in running if member.still_since is not None)
    message = (
        f"no progress since {clock(since)}: no line, no metric and nothing written, and {LOOKED}; the stacks of its "
        "processes are in the log"
    )
    return Notice("stalled", message, since, {"learners": _still(running), "action": action})


def _read(reports: Mapping[int, Mapping[str, Any] | None]) -> dict[int, Report | None]:
    return {rank: None if report is None else Report.model_validate(report) for rank, report in reports.items()}


def _ended(view: View) -> dict[int, str]:
    """The learners whose program has ended, and how."""
    return {
        member.rank: "its program is over" if member.exit_code is None else describe_exit(member.exit_code)
        for member in view.members
        if member.phase.order > LearnerPhase.PROCESSING.order
    }


def no_output_due(view: View) -> datetime | None:
    """When the warning that the gang has written nothing may first be due."""
    limit, since = view.timings.no_output, view.job.state_since
    if not limit or view.open is None or view.open.no_output_at or view.job.keepalive or since is None:
        return None
    due = since + timedelta(seconds=limit)
    # After this moment, it has written something, or its agents do not report that.
    return due if due >= view.now else None


def stall_due(view: View) -> datetime | None:
    """When the gang may first count as stalled, or be looked at: a learner that was busy at its last heartbeat became
    idle after it."""
    limit, action = _asked(view)
    if not limit or action == "ignore" or view.job.keepalive:
        return None
    running = _running(view)
    since = [member.idle_since or member.heartbeat_at or member.started_at for member in running]
    since.append(_last_end(view))
    known = [moment for moment in since if moment is not None]
    due = max(known) + timedelta(seconds=limit) if known else None
    look = _look_due(view, running, limit)
    return look if due is None or (look is not None and look < due) else due


def _look_due(view: View, running: Sequence[LearnerView], limit: float) -> datetime | None:
    """When the gang will have shown no step for so long that its agents should look at it."""
    since = [member.still_since for member in running if member.still_since is not None]
    if not running or len(since) < len(running):  # an older agent, or a program that does not run yet
        return None
    due = max(since) + timedelta(seconds=max(limit, _PAUSES * max(member.pause for member in running)))
    alive = None if view.attempt is None else view.attempt.alive_at
    signs = [sign for sign in (alive, _last_end(view)) if sign is not None]
    return max([due, *(sign + timedelta(seconds=limit) for sign in signs)])


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
    since, end = _idle_since(view, running), _last_end(view)
    if attempt.stalled_at is None:
        gets_on = since is None or (end is not None and view.since(end) < limit)
        if gets_on or any(_idle_for(learner) < limit for learner in running):
            return _looks(view, attempt, running, limit)
        return Notice("stalled", _words(running, limit), since, {"learners": _idle(running), "action": action})
    # A gang that waits in a collective may be busy. Only a step shows that it gets on.
    quiet = _idle_for if attempt.look_at is None else _still_for
    if any(_heard(view, learner) and quiet(learner) < limit for learner in running):
        return Notice("moving", "")
    waited = view.since(attempt.stalled_at)
    if attempt.verdict is None and (_all_reported(attempt.stalled_at, running) or waited > _PATIENCE):
        return Notice("judge", "")
    proved = attempt.verdict is not None if attempt.look_at is None else bool(attempt.verdict)
    if action in ("end", "fail") and waited > _BEATS * view.timings.heartbeat and proved:
        assert attempt.stalled_since is not None
        verdict = f"{attempt.verdict}; " if attempt.verdict else ""
        how = f"all learners were idle for {duration(limit)}" if attempt.look_at is None else LOOKED
        reason = (
            f"no progress since {clock(attempt.stalled_since)}: {verdict}{how}; ended, as its manifest's stall.action "
            "says (the stacks of its processes are in the log)"
        )
        # Without an exit code, an attempt is not retried.
        code = ENDED_CODE if action == "end" else None
        return Settle(Outcome.FAILED, reason, view.grace(GANG_GRACE), "C201", code)
    return None


def _looks(view: View, attempt: AttemptView, running: Sequence[LearnerView], limit: float) -> Notice | None:
    """Have the agents look at a gang that shows no step for longer than it ever has."""
    if attempt.look_at is not None:
        waited = view.since(attempt.look_at)
        return Notice("looked", "") if _all_reported(attempt.look_at, running) or waited > _PATIENCE else None
    due = _look_due(view, running, limit)
    if due is None or view.now < due or not all(_heard(view, learner) for learner in running):
        return None
    return Notice("look", "")


def _all_reported(stalled_at: datetime, running: Sequence[LearnerView]) -> bool:
    return all(learner.stacks_at is not None and learner.stacks_at >= stalled_at for learner in running)


def _asked(view: View) -> tuple[float, str]:
    """The limit in seconds, and what is to be done."""
    asked = view.job.manifest.get("stall") or {}
    return asked.get("after_seconds", view.timings.stall), asked.get("action", "warn")


def _running(view: View) -> list[LearnerView]:
    """The learners that those that have ended well wait for."""
    return [member for member in view.members if member.phase is LearnerPhase.PROCESSING]


def _last_end(view: View) -> datetime | None:
    """When the last of the learners that are done ended its program. Until then, the others may have waited for it."""
    done = [member for member in view.members if member.phase.order > LearnerPhase.PROCESSING.order]
    return max((end for member in done if (end := member.exited_at or member.active_at)), default=None)


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


def _still_for(learner: LearnerView) -> float:
    """Seconds without a step until its last heartbeat."""
    if learner.still_since is None or learner.heartbeat_at is None:
        return 0.0
    return (learner.heartbeat_at - learner.still_since).total_seconds()


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


def _still(running: Sequence[LearnerView]) -> list[dict[str, Any]]:
    return [
        {"learner": learner.rank + 1, "still_since": learner.still_since.isoformat() if learner.still_since else None}
        for learner in running
    ]


def clock(moment: datetime) -> str:
    # Rounded to the second, because each heartbeat computes it anew.
    return f"{(moment + timedelta(seconds=0.5)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
