"""Rules about time: ``no step for 10m``. Log lines and metrics are checked where they come in (docs/notify.md)."""

from __future__ import annotations

from datetime import datetime, timedelta

from weft_core.lifecycle.actions import Fire
from weft_core.lifecycle.states import JobState, LearnerPhase
from weft_core.lifecycle.view import LearnerView, View
from weft_core.words import duration


def check_rules(view: View) -> Fire | None:
    """The first rule about time that holds.

    Unknown is not stuck: while a learner is silent, no rule holds, and after a silence the time begins anew, as the
    metrics of that time may still be on their way.
    """
    job = view.job
    if job.state is not JobState.PROCESSING or not job.step_rules or job.state_since is None:
        return None
    running = _running(view)
    if not running or any(_silent(view, member) for member in running):
        return None
    last = _last_step(view, job.state_since)
    for index, condition in job.step_rules:
        if view.since(last) > condition.seconds:
            return Fire(index, f"no metric came for {duration(condition.seconds)}")
    return None


def rules_due(view: View) -> list[datetime]:
    """When each rule about time may first hold."""
    if view.job.state_since is None or not view.job.step_rules or not _running(view):
        return []
    last = _last_step(view, view.job.state_since)
    return [last + timedelta(seconds=condition.seconds) for _, condition in view.job.step_rules]


def _running(view: View) -> list[LearnerView]:
    return [member for member in view.members if member.phase is LearnerPhase.PROCESSING]


def _last_step(view: View, state_since: datetime) -> datetime:
    heard = [member.heard_since for member in _running(view)]
    return max(filter(None, (state_since, view.job.stepped_at, *heard)))


def _silent(view: View, learner: LearnerView) -> bool:
    return learner.heartbeat_at is None or view.since(learner.heartbeat_at) > view.timings.silence
