"""An elastic attempt that trains: which of its learners are lost, and whether it may have more. Pure functions.

A loss does not end the attempt as long as there are enough learners left. The consequences of a loss are not losses:
workers whose peer died fail too, within a second, and start again with the next round (docs/elastic.md).
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from datetime import timedelta

from weft_core.launch import ElasticSpec
from weft_core.lifecycle.actions import GANG_GRACE, Action, Decision, Grow, Lose
from weft_core.lifecycle.failures import Failure, find_failures, reported, seek_reports
from weft_core.lifecycle.rounds import AFTERMATH, Round
from weft_core.lifecycle.sightings import missing
from weft_core.lifecycle.states import JobState, Outcome
from weft_core.lifecycle.view import LearnerView, View
from weft_core.words import duration

_NEWS = 7.0
"""Seconds after a failure within which another learner reports that its own workers have failed, too."""
_LONGEST_COOLDOWN = 600.0
_SIGNALS = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
"""Signals that end workers, but never because of a lost peer (that may well send SIGABRT)."""


def decide_members(view: View) -> Decision | None:
    """What to do about members that have ended; the engine has answered."""
    elastic, attempt = view.job.elastic, view.open
    assert elastic is not None
    assert attempt is not None
    silent = frozenset(member.rank for member in view.members if not member.reported and missing(view, member.rank))
    if reports := seek_reports(view, silent):
        return reports
    lost = {failure.rank: failure for failure in find_failures(view, silent)} | _taken_back(view) | _not_started(view)
    lost |= {failure.rank: failure for failure in _blamed(view, bool(lost))}
    if not lost:
        return None
    if not _goes_on(view, elastic, lost.keys()):
        return min(lost.values(), key=lambda failure: failure.weight).settle(view.grace(GANG_GRACE))
    return Lose({rank: failure.what.removeprefix("was ") for rank, failure in sorted(lost.items())})


def _goes_on(view: View, elastic: ElasticSpec, gone: Collection[int]) -> bool:
    """Whether the attempt can go on without the learners that are ``gone``."""
    rest = [member for member in view.members if member.rank not in gone]
    if len(rest) < elastic.min:
        return False
    last = _last(view)
    # The leader's results are lost with it. If other learners have ended already, they can't train again.
    ending = any(member.exit_code == 0 for member in rest)
    return not (ending and last is not None and last.members[0] in gone)


def _last(view: View) -> Round | None:
    return next((round_ for round_ in reversed(view.rounds) if not round_.open), None)


def _taken_back(view: View) -> dict[int, Failure]:
    run = view.sighting.observation if view.sighting else None
    taken = [learner for learner in run.learners.values() if learner.interrupted] if run else []
    present = {member.rank for member in view.members}
    return {
        learner.rank: Failure(
            learner.rank,
            Outcome.INTERRUPTED,
            f"was interrupted: {learner.reason or 'its engine took it back'}",
            "",
            None,
            (0, 0),
        )
        for learner in taken
        if learner.rank in present
    }


def _not_started(view: View) -> dict[int, Failure]:
    """Members that never got their start grant, in a run whose other learners train."""
    run, limit = view.sighting.observation if view.sighting else None, view.timings.start_timeout
    late = f"it did not start within {duration(limit)}"
    return {
        member.rank: Failure(
            member.rank, Outcome.INTERRUPTED, run.failed if run and run.failed else late, "", None, (0, 0)
        )
        for member in view.members
        if not member.granted
        and member.launched_at is not None
        and ((run and run.failed) or (view.since(member.launched_at) > limit and not (run and run.held)))
    }


def _blamed(view: View, others: bool) -> list[Failure]:
    """The members to blame among those whose workers have failed while their agents live."""
    last = _last(view)
    if last is None or view.rounds[-1].open:
        return []
    broken = [member for member in view.members if member.broken == last.n and not member.reported and member.exit_code]
    killed = [member for member in broken if _was_killed(member)]
    if killed or not broken:
        return [reported(view, member, None) for member in killed]
    if others or any(view.learners[rank].left for rank in last.members):
        return []  # they lost a peer
    if not last.restart and view.now - last.opened_at < AFTERMATH:
        return []
    first = min(broken, key=lambda member: member.broken_at or view.now)
    if first.broken_at is None or (_unheard(view, first, last) and view.since(first.broken_at) <= view.timings.verdict):
        return []
    return [reported(view, first, None)]


def _was_killed(member: LearnerView) -> bool:
    return (member.exit_code or 0) - 128 in _SIGNALS or "out of memory" in (member.exit_reason or "")


def _unheard(view: View, first: LearnerView, last: Round) -> bool:
    """Whether another member may have failed before the first one that reported it, and could not report it yet."""
    assert first.broken_at is not None
    return any(
        member.broken != last.n
        and not member.reported
        and member.rank in last.members
        and (member.heartbeat_at is None or (member.heartbeat_at - first.broken_at).total_seconds() < _NEWS)
        for member in view.members
    )


def decide_more(view: View) -> Action | None:
    """Ask for more learners, unless the job is ending or its gang has changed recently."""
    elastic, attempt = view.job.elastic, view.open
    last = _last(view)
    if elastic is None or attempt is None or last is None or view.job.state is not JobState.PROCESSING:
        return None
    if len(view.members) >= elastic.max or any(member.exit_code == 0 for member in view.members):
        return None
    after = attempt.grow_at or last.opened_at + timedelta(seconds=view.timings.elastic_cooldown)
    return Grow() if view.now >= after else None


def cooldown(view: View, lost: int = 0) -> float:
    """Seconds before an attempt may have more learners, after it has been given some or has lost ``lost`` of them."""
    losses = lost + len(view.learners) - len(view.members)
    return min(_LONGEST_COOLDOWN, view.timings.elastic_cooldown * 2.0 ** max(0, losses - 1))
