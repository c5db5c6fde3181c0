"""The effects of a step.

Calls of an engine or S3 happen outside any transaction. Then the leased row is taken, and all their results are written
at once. Each effect returns in how many seconds to step again right here, or None.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from weft_core.engine import EngineUnreachable, LaunchRefused
from weft_core.engine_settings import LocalSettings
from weft_core.launch import LaunchSpec
from weft_core.lifecycle.actions import (
    SHORT_GRACE,
    Action,
    Admit,
    Advance,
    Close,
    Fire,
    Grow,
    HaltQueued,
    Launch,
    LaunchMore,
    Lose,
    Notice,
    Pause,
    Purge,
    RecordExits,
    Rest,
    Settle,
)
from weft_core.lifecycle.blame import blamed_by_hang, blamed_by_loss
from weft_core.lifecycle.deadlines import POLL, UNREACHABLE_POLL
from weft_core.lifecycle.elastic import cooldown
from weft_core.lifecycle.failures import headline
from weft_core.lifecycle.progress import judge_looks, judge_stall, stall_condition
from weft_core.lifecycle.states import JobState, LearnerPhase, Outcome
from weft_core.lifecycle.view import AttemptView, View
from weft_core.objects import StoreError, job_prefix, results_prefix
from weft_core.packages import PYPI
from weft_core.secrets import SecretsUnreadable
from weft_core.store.backups import BackupRuns, may_delete
from weft_core.store.blames import blame, nodes_to_avoid
from weft_core.store.jobs import record_event, transition
from weft_core.store.models import Attempt, Job, Learner
from weft_core.store.queue import note_change
from weft_core.store.registry import keeps_results
from weft_core.store.rules import act_on_firings, note_firing
from weft_core.tracing import Attribute
from weft_workers.context import Context
from weft_workers.ended_keys import EndedKeys
from weft_workers.lease import Lease, renew, take
from weft_workers.reconcile.ending import close, settle
from weft_workers.reconcile.grow import grow
from weft_workers.reconcile.writing import apply_notes, last_lines, set_condition, tell_ended, trouble, write_down
from weft_workers.waiting import read_placement, read_resources

log = structlog.get_logger(__name__)

_RENEW_EVERY = 500  # objects


def perform(context: Context, lease: Lease, view: View, action: Action) -> float | None:
    """Perform the action."""
    match action:
        case Rest():
            return write_down(context, lease, view, None)
        case Pause(seconds):
            watched = view.job.engine in context.engines
            return write_down(context, lease, view, seconds if watched else min(seconds, UNREACHABLE_POLL))
        case Admit():  # its client was heard of again since the claim, so that it waits on
            return write_down(context, lease, view, 0)
        case HaltQueued():
            return _halt_queued(context, lease, view, action.reason)
        case Purge():
            return _purge(context, lease, view)
        case Launch():
            return _launch(context, lease, view)
        case Advance():
            return _advance(context, lease, view, action)
        case Notice():
            return _notice(context, lease, view, action)
        case Fire():
            return _fire(context, lease, view, action)
        case RecordExits():
            return _record_exits(context, lease, view, action)
        case Lose():
            return _lose(context, lease, view, action)
        case Grow():
            return 0 if grow(context, lease, view) else None
        case LaunchMore():
            return _launch_more(context, lease, view, action)
        case Settle():
            return settle(context, lease, view, action)
        case Close():
            return close(context, lease, view, action)


# --- nothing runs -------------------------------------------------------------------------------------------------


def _halt_queued(context: Context, lease: Lease, view: View, reason: str) -> float | None:
    with context.database.transaction() as session:
        taken = take(session, lease)
        transition(session, taken.job, JobState.HALTED, reason)
        note_change(session, view.job.engine)
        again = taken.release(None)
    tell_ended(context, view)
    return 0 if again else None


def _purge(context: Context, lease: Lease, view: View) -> float | None:
    """Remove the job's objects in the installation's own bucket, then its rows. A user's own bucket is not touched, nor
    are results that are a model's version."""
    try:
        with context.database.transaction() as session:
            kept = results_prefix(view.job.project_id, view.job.id) if keeps_results(session, view.job.id) else None
        keys = []
        for found in context.objects.objects(job_prefix(view.job.project_id, view.job.id)):
            if kept and found.key.startswith(kept):
                continue
            keys.append(found.key)
            if len(keys) == _RENEW_EVERY:
                renew(context.database, lease)
                _delete(context, keys)
                keys = []
        _delete(context, keys)
    except BackupRuns as error:
        return trouble(context, lease, str(error))
    except StoreError as error:
        if error.kind != "no_container":
            return trouble(context, lease, f"can't delete the job's files: {error}")
    if EndedKeys.wanted(context.settings):
        try:
            EndedKeys(context.database, context.settings).end_of_job(view.job.id)
        except StoreError as error:
            return trouble(context, lease, f"can't end the keys of the job's learners: {error}")
    with context.database.transaction() as session:
        take(session, lease)
        session.execute(delete(Job).where(Job.id == view.job.id))
        if view.job.state is JobState.QUEUED:
            note_change(session, view.job.engine)
    log.info("deleted")
    tell_ended(context, view)
    return None


def _delete(context: Context, keys: list[str]) -> None:
    with context.database.transaction() as session:
        may_delete(session)
        context.objects.delete(keys)


# --- an open attempt ----------------------------------------------------------------------------------------------


def _launch(context: Context, lease: Lease, view: View) -> float | None:
    attempt = view.open
    assert attempt is not None
    about: dict[str, Attribute] = {"job": view.job.id, "attempt": attempt.n, "engine": view.job.engine}
    try:
        with context.tracing.span("launch", view.job.traceparent, **about) as place:
            context.engine(view.job.engine).launch(replace(_spec(context, view, attempt), traceparent=place))
    except EngineUnreachable as error:
        return write_down(context, lease, replace(view, unreachable=str(error)), UNREACHABLE_POLL)
    except LaunchRefused as error:
        refused = Settle(Outcome.FAILED, str(error), SHORT_GRACE, error.code or "S101")
        return settle(context, lease, view, refused)
    except SecretsUnreadable as error:
        return trouble(context, lease, f"can't start: {error}")
    with context.database.transaction() as session:
        taken = take(session, lease)
        session.get_one(Attempt, attempt.id).launched_at = func.now()
        session.execute(update(Learner).where(Learner.attempt_id == attempt.id).values(launched_at=func.now()))
        set_condition(session, taken.job, None)
        again = taken.release(POLL)
    log.info("launched", engine=view.job.engine, learners=len(view.learners))
    return 0 if again else None


def _launch_more(context: Context, lease: Lease, view: View, action: LaunchMore) -> float | None:
    attempt = view.open
    assert attempt is not None
    try:
        context.engine(view.job.engine).grow(_spec(context, view, attempt), action.ranks)
    except EngineUnreachable as error:
        return write_down(context, lease, replace(view, unreachable=str(error)), UNREACHABLE_POLL)
    except LaunchRefused as error:
        return _lose(context, lease, view, Lose(dict.fromkeys(action.ranks, f"it can't be started: {error}")))
    except SecretsUnreadable as error:
        return trouble(context, lease, f"can't start more learners: {error}")
    with context.database.transaction() as session:
        taken = take(session, lease)
        these = Learner.rank.in_(action.ranks)
        session.execute(update(Learner).where(Learner.attempt_id == attempt.id, these).values(launched_at=func.now()))
        again = taken.release(POLL)
    log.info("learners added", engine=view.job.engine, ranks=action.ranks)
    return 0 if again else None


def _lose(context: Context, lease: Lease, view: View, lose: Lose) -> float | None:
    """The others go on without these learners, which may do nothing any more and whose room is free."""
    attempt = view.open
    assert attempt is not None
    with context.database.transaction() as session:
        taken = take(session, lease)
        if taken.asked is not None:
            # A report or a request came in since, so the basis of this verdict is outdated.
            taken.release(0)
            return 0
        apply_notes(session, taken.job, view)
        there = len(view.members)
        left = there - len(lose.reasons)
        for rank, reason in lose.reasons.items():
            row = session.get_one(Learner, (attempt.id, rank))
            row.left_at, row.left_reason = func.now(), reason
            if (node := blamed_by_loss(view, rank, reason)) is not None:
                blame(session, taken.job, attempt.n, node, f"learner {rank + 1} {reason}")
            lines = last_lines(session, view, attempt, rank)
            data = {"learner": rank + 1, "exit_code": row.exit_code, "members": left, "last_lines": lines}
            words = f"learner {rank + 1} was lost ({headline(reason)}): training goes on with {left} of {there}"
            record_event(session, taken.job, "elastic", words, data=data)
        wait = timedelta(seconds=cooldown(view, len(lose.reasons)))
        session.get_one(Attempt, attempt.id).grow_at = func.now() + wait
        note_change(session, view.job.engine)
        taken.release(0)
    log.info("learners lost", reasons=lose.reasons)
    tell_ended(context, view)
    return 0


def _spec(context: Context, view: View, attempt: AttemptView) -> LaunchSpec:
    chosen = context.settings.engines[view.job.engine]
    own_url = None if isinstance(chosen, LocalSettings) else chosen.api_url
    return LaunchSpec(
        run_name=attempt.run_name,
        installation=context.installation,
        project_id=view.job.project_id,
        job_id=view.job.id,
        attempt=attempt.n,
        learners=len(view.learners),
        resources=read_resources(view.job.manifest["resources"]),
        image=view.job.manifest["framework"]["image"],
        api_url=own_url or context.settings.api.public_url,
        token=context.box.decrypt(attempt.token),
        project=view.job.project,
        job_name=view.job.name,
        placement=replace(
            read_placement(context.settings, view.job.manifest.get("profile")),
            avoid=_blamed_nodes(context, view.job.engine),
        ),
        grace=context.settings.timings.grace,
        endpoints=tuple(url for url in view.job.endpoints if url not in PYPI),
        # Nobody named the default index, so it may have any address, such as that of a mirror.
        own_endpoints=(*context.settings.own_urls(), *(url for url in view.job.endpoints if url in PYPI)),
    )


def _blamed_nodes(context: Context, engine: str) -> tuple[str, ...]:
    with context.database.transaction() as session:
        return nodes_to_avoid(session, context.settings, engine)


def _advance(context: Context, lease: Lease, view: View, advance: Advance) -> float | None:
    with context.database.transaction() as session:
        taken = take(session, lease)
        apply_notes(session, taken.job, view)
        transition(session, taken.job, advance.state, advance.reason)
        again = taken.release(POLL)
    context.wake.changed(view.job.id)
    return 0 if again else None


def _notice(context: Context, lease: Lease, view: View, notice: Notice) -> float | None:
    """Record the warning as an event, and note that on the attempt; heartbeats ask for stacks as long as it is
    stalled."""
    attempt = view.open
    assert attempt is not None
    with context.database.transaction() as session:
        taken = take(session, lease)
        row = session.get_one(Attempt, attempt.id)
        if notice.what == "no_output":
            row.no_output_at = func.now()
        elif notice.what == "judge":
            notice = _judge(session, taken.job, row, view)
        elif notice.what == "look":
            row.look_at = func.now()
        else:
            if notice.what == "looked":
                notice = judge_looks(view, _reports(session, row))
            else:
                row.look_at = None  # a stall by idleness, or the end of any
            if notice.what == "moving":
                row.look_at, row.alive_at = None, func.now()
            stalled = notice.what == "stalled"
            row.stalled_at, row.stalled_since = (func.now(), notice.since) if stalled else (None, None)
            row.verdict = None
            if stalled:  # the warning says it, so the condition needs no event of its own
                taken.job.condition = stall_condition(replace(attempt, stalled_since=notice.since))
            elif attempt.stalled_at is not None:
                set_condition(session, taken.job, None)
        if notice.message:
            record_event(session, taken.job, "warning", notice.message, data=notice.data)
        again = taken.release(POLL)
    log.info("progress", what=notice.what)
    context.wake.changed(view.job.id)
    return 0 if again else None


def _judge(session: Session, job: Job, attempt: Attempt, view: View) -> Notice:
    """Find the verdict on a stall in the reports of the learners' agents, and drop these."""
    assert view.open is not None
    attempt.verdict, notice = judge_stall(view, _reports(session, attempt))
    if (node := blamed_by_hang(view, notice.data)) is not None:
        blame(session, job, attempt.n, node, attempt.verdict)
    job.condition = stall_condition(replace(view.open, verdict=attempt.verdict))
    return notice


def _reports(session: Session, attempt: Attempt) -> dict[int, dict[str, Any] | None]:
    """Of the attempt's learners, which then do not keep them any more."""
    learners = select(Learner.rank, Learner.stacks).where(Learner.attempt_id == attempt.id, Learner.left_at.is_(None))
    reports: dict[int, dict[str, Any] | None] = {row.rank: row.stacks for row in session.execute(learners)}
    session.execute(update(Learner).where(Learner.attempt_id == attempt.id).values(stacks=None))
    return reports


def _fire(context: Context, lease: Lease, view: View, fire: Fire) -> float | None:
    """Act on a rule about time."""
    assert view.attempt is not None
    with context.database.transaction() as session:
        taken = take(session, lease)
        note_firing(session, taken.job, fire.rule, view.attempt.n, fire.found)
        act_on_firings(session, taken.job.id)
        taken.release(0)
    log.info("rule fired", rule=fire.rule, found=fire.found)
    context.wake.changed(view.job.id)
    return 0


def _record_exits(context: Context, lease: Lease, view: View, action: RecordExits) -> float | None:
    assert view.attempt is not None
    with context.database.transaction() as session:
        taken = take(session, lease)
        for rank, report in action.reports.items():
            session.execute(
                update(Learner)
                .where(
                    Learner.attempt_id == view.attempt.id,
                    Learner.rank == rank,
                    Learner.phase != LearnerPhase.EXITED.value,
                )
                .values(
                    phase=LearnerPhase.EXITED.value,
                    phase_since=func.now(),
                    exit_code=report.exit_code,
                    exit_reason=report.reason,
                    exited_at=func.now(),
                )
            )
        taken.release(0)
    log.info("exit reports found in the store", ranks=sorted(action.reports))
    return 0
