"""An elastic attempt that trains: which of its learners are lost, and whether it may have more. Pure functions.

A loss does not end the attempt as long as there are enough learners left. What follows from a loss is none: workers
whose peer died fail too, within a second, and start again with the next round (docs/elastic.md).
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
"""Seconds after a failure at which a learner that is heard again would have said if its own workers had failed too."""
_LONGEST_COOLDOWN = 600.0
_SIGNALS = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
"""What ends workers, and is never what a lost peer does to them (that may well be SIGABRT)."""


def decide_members(view: View) -> Decision | None:
    """What to do about members that have ended, with an engine that answers."""
    elastic, attempt = view.job.elastic, view.open
    assert elastic is not None
    assert attempt is not None
    silent = frozenset(one.rank for one in view.members if not one.reported and missing(view, one.rank))
    if reports := seek_reports(view, silent):
        return reports
    lost = {one.rank: one for one in find_failures(view, silent)} | _taken_back(view) | _not_started(view)
    lost |= {one.rank: one for one in _blamed(view, bool(lost))}
    if not lost:
        return None
    if not _goes_on(view, elastic, lost.keys()):
        return min(lost.values(), key=lambda failure: failure.weight).settle(view.grace(GANG_GRACE))
    return Lose({rank: one.what.removeprefix("was ") for rank, one in sorted(lost.items())})


def _goes_on(view: View, elastic: ElasticSpec, gone: Collection[int]) -> bool:
    """Whether the rest is enough."""
    rest = [one for one in view.members if one.rank not in gone]
    if len(rest) < elastic.min:
        return False
    last = _last(view)
    # What the leader has trained goes with it; when others have ended already, nobody is left to train it again.
    ending = any(one.exit_code == 0 for one in rest)
    return not (ending and last is not None and last.members[0] in gone)


def _last(view: View) -> Round | None:
    return next((one for one in reversed(view.rounds) if not one.open), None)


def _taken_back(view: View) -> dict[int, Failure]:
    run = view.sighting.observation if view.sighting else None
    taken = [one for one in run.learners.values() if one.interrupted] if run else []
    present = {one.rank for one in view.members}
    return {
        one.rank: Failure(
            one.rank,
            Outcome.INTERRUPTED,
            f"was interrupted: {one.reason or 'its engine took it back'}",
            "",
            None,
            (0, 0),
        )
        for one in taken
        if one.rank in present
    }


def _not_started(view: View) -> dict[int, Failure]:
    """Members that never got their start grant, of a run whose others train."""
    run, limit = view.sighting.observation if view.sighting else None, view.timings.start_timeout
    late = f"it did not start within {duration(limit)}"
    return {
        one.rank: Failure(one.rank, Outcome.INTERRUPTED, run.failed if run and run.failed else late, "", None, (0, 0))
        for one in view.members
        if not one.granted
        and one.launched_at is not None
        and ((run and run.failed) or (view.since(one.launched_at) > limit and not (run and run.held)))
    }


def _blamed(view: View, others: bool) -> list[Failure]:
    """Of the members whose workers have failed, while their agents live, those that are to blame for it."""
    last = _last(view)
    if last is None or view.rounds[-1].open:
        return []
    broken = [one for one in view.members if one.broken == last.n and not one.reported and one.exit_code]
    killed = [one for one in broken if _was_killed(one)]
    if killed or not broken:
        return [reported(view, one, None) for one in killed]
    if others or any(view.learners[rank].left for rank in last.members):
        return []  # they lost a peer
    if not last.restart and view.now - last.opened_at < AFTERMATH:
        return []
    first = min(broken, key=lambda one: one.broken_at or view.now)
    if first.broken_at is None or (_unheard(view, first, last) and view.since(first.broken_at) <= view.timings.verdict):
        return []
    return [reported(view, first, None)]


def _was_killed(one: LearnerView) -> bool:
    return (one.exit_code or 0) - 128 in _SIGNALS or "out of memory" in (one.exit_reason or "")


def _unheard(view: View, first: LearnerView, last: Round) -> bool:
    """Whether a member may have failed before the first one that said so, and could not say it yet."""
    assert first.broken_at is not None
    return any(
        one.broken != last.n
        and not one.reported
        and one.rank in last.members
        and (one.heartbeat_at is None or (one.heartbeat_at - first.broken_at).total_seconds() < _NEWS)
        for one in view.members
    )


def decide_more(view: View) -> Action | None:
    """Whether to ask for more learners: not while the job is ending, and not soon after the last change."""
    elastic, attempt = view.job.elastic, view.open
    last = _last(view)
    if elastic is None or attempt is None or last is None or view.job.state is not JobState.PROCESSING:
        return None
    if len(view.members) >= elastic.max or any(one.exit_code == 0 for one in view.members):
        return None
    after = attempt.grow_at or last.opened_at + timedelta(seconds=view.timings.elastic_cooldown)
    return Grow() if view.now >= after else None


def cooldown(view: View, lost: int = 0) -> float:
    """Seconds before an attempt is given more learners, after it has been given some or has lost so many more."""
    losses = lost + len(view.learners) - len(view.members)
    return min(_LONGEST_COOLDOWN, view.timings.elastic_cooldown * 2.0 ** max(0, losses - 1))
