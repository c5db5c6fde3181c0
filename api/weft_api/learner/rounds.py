"""Where the learners of an elastic attempt meet for each round (docs/elastic.md)."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_api.access.attempts import AttemptToken, fence, granted_learner, open_attempt
from weft_api.context import Context
from weft_api.http.problems import invalid
from weft_api.learner.schemas import Peer, RoundAnswer, RoundCall
from weft_core.launch import ElasticSpec
from weft_core.lifecycle.rounds import (
    Change,
    CloseRound,
    OpenRound,
    RestartRound,
    Round,
    RoundLearner,
    is_over,
    next_change,
)
from weft_core.store import jobs, models
from weft_core.store.models import Attempt, Job, Learner
from weft_core.store.rounds import clock, read_rounds, round_learner
from weft_core.words import count

KEEP_MEMORY = frozenset({"horovod"})
"""Launchers whose workers survive a change of the gang."""


def take_part(context: Context, token: AttemptToken, call: RoundCall) -> RoundAnswer:
    """The answer to a learner that takes part in the rounds. Changes nothing unless something has to change.

    Raises:
        Problem: stale_attempt; invalid_request when the job is not elastic.
    """
    with context.database.transaction() as session:
        attempt = open_attempt(session, token)
        learner = granted_learner(session, attempt, call.rank, call.instance, lock=False)
        job = session.get_one(Job, attempt.job_id)
        rounds = read_rounds(session, attempt.id)
        if learner.left_at is not None or not (_news(call, learner, rounds) or _change(session, job, attempt, rounds)):
            return _answer(session, attempt, learner, call, rounds)
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=True)
        learner = granted_learner(session, attempt, call.rank, call.instance)
        broke = _write_down(session, attempt, learner, call)
        _move(session, job, attempt)
        answer = _answer(session, attempt, learner, call, read_rounds(session, attempt.id))
        if broke:
            jobs.due(job)
    if broke:
        context.wake.job(job.id)
    return answer


def _elastic(job: Job) -> ElasticSpec:
    if not job.manifest.get("elastic"):
        raise invalid("round", f"job {job.id} is not elastic")
    return ElasticSpec.model_validate(job.manifest["elastic"])


def _members(session: Session, attempt: Attempt) -> list[RoundLearner]:
    rows = session.scalars(select(Learner).where(Learner.attempt_id == attempt.id).order_by(Learner.rank))
    return [round_learner(row) for row in rows]


def _change(session: Session, job: Job, attempt: Attempt, rounds: list[Round]) -> Change | None:
    keeps = job.manifest["framework"]["launcher"] in KEEP_MEMORY
    return next_change(clock(session), rounds, _members(session, attempt), _elastic(job).min, keeps)


def _news(call: RoundCall, learner: Learner, rounds: list[Round]) -> bool:
    """Whether the call says what is not written down yet."""
    match call.state:
        case "running":
            return False
        case "broken":
            return (learner.broken or 0) < (_last_of(learner, rounds) or 0)
    target = _target(learner, call, rounds)
    return target is not None and (learner.arrived or 0) < target


def _last_of(learner: Learner, rounds: list[Round]) -> int | None:
    """The last round that the learner was in. A round that kept its workers may have closed since the learner asked."""
    return next((past.n for past in reversed(rounds) if learner.rank in past.members), None)


def _target(learner: Learner, call: RoundCall, rounds: list[Round]) -> int | None:
    """The round that a waiting learner is ready for; None: it is in a closed one, and only the answer was lost."""
    newest = rounds[-1] if rounds else None
    if newest is None:
        return 1
    if newest.open:
        return newest.n
    return None if call.round < newest.n and learner.rank in newest.members else newest.n + 1


def _write_down(session: Session, attempt: Attempt, learner: Learner, call: RoundCall) -> bool:
    """Note that a learner is ready, or that its workers have failed; whether somebody has to judge that."""
    rounds = read_rounds(session, attempt.id)
    if learner.left_at is not None or not _news(call, learner, rounds):
        return False
    learner.heartbeat_at = func.now()
    if call.state == "ready":
        learner.arrived, learner.arrived_at = _target(learner, call, rounds), func.now()
        if call.address:
            learner.address, learner.ports = call.address, call.ports
        return False
    learner.broken, learner.broken_at = _last_of(learner, rounds), func.now()
    learner.exit_code = call.exit_code or 1
    learner.exit_reason, learner.last_lines = call.reason, "\n".join(call.last_lines)
    return True


def _move(session: Session, job: Job, attempt: Attempt) -> None:
    """Open and close rounds as long as there is something to do."""
    while True:
        session.flush()
        rounds = read_rounds(session, attempt.id)
        newest = rounds[-1] if rounds else None
        match _change(session, job, attempt, rounds):
            case None:
                return
            case OpenRound(restart, reason):
                n = newest.n + 1 if newest else 1
                session.add(
                    models.Round(
                        attempt_id=attempt.id, n=n, project_id=attempt.project_id, restart=restart, reason=reason
                    )
                )
            case RestartRound():
                assert newest
                session.get_one(models.Round, (attempt.id, newest.n)).restart = True
            case CloseRound(numbers):
                assert newest
                _close(session, job, attempt, newest, numbers, rounds[-2].members if len(rounds) > 1 else ())


def _close(
    session: Session, job: Job, attempt: Attempt, newest: Round, numbers: tuple[int, ...], before: tuple[int, ...]
) -> None:
    row = session.get_one(models.Round, (attempt.id, newest.n))
    row.members, row.closed_at = list(numbers), func.now()
    members = {
        learner.rank: learner for learner in session.scalars(select(Learner).where(Learner.attempt_id == attempt.id))
    }
    for number in numbers:
        # Its workers start again, so its report about their failure is out of date.
        members[number].arrived = newest.n
        if members[number].exit_code:
            members[number].exit_code = members[number].exit_reason = members[number].last_lines = None
    if not before:
        return
    joined = [members[number].rank + 1 for number in numbers if number not in before]
    how = f"training goes on with {count(len(numbers), 'learner')}"
    data = {"round": newest.n, "members": [number + 1 for number in numbers]}
    if joined:
        who = f"learner{'s' if len(joined) > 1 else ''} {', '.join(str(number) for number in joined)} joined"
        jobs.record_event(session, job, "elastic", f"{who}: {how}", attempt=attempt.n, data=data)
    else:
        jobs.record_event(session, job, "elastic", f"round {newest.n}: {how}", attempt=attempt.n, data=data)
    if job.state == "PROCESSING":
        job.reason = f"running in {count(len(numbers), 'learner')}"


def _answer(session: Session, attempt: Attempt, learner: Learner, call: RoundCall, rounds: list[Round]) -> RoundAnswer:
    newest = rounds[-1] if rounds else None
    closed = next((past for past in reversed(rounds) if not past.open), None)
    if learner.left_at is not None:
        return RoundAnswer(verdict="leave", reason=learner.left_reason or "")
    if call.state == "broken":
        return RoundAnswer(verdict="wait")
    if call.state == "running":
        # A learner that is in the round that has closed meanwhile gets that round when it arrives for it.
        if newest is None or newest.n <= call.round:
            return RoundAnswer(verdict="wait")
        return RoundAnswer(verdict="change", round=newest.n, restart=newest.restart, reason=newest.reason)
    if newest and not newest.open and newest.n > call.round and learner.rank in newest.members:
        return _place(session, attempt, newest)
    if is_over(closed, _members(session, attempt)):
        return RoundAnswer(verdict="finish", reason="training has ended")
    return RoundAnswer(verdict="wait")


def _place(session: Session, attempt: Attempt, newest: Round) -> RoundAnswer:
    rows = {
        learner.rank: learner for learner in session.scalars(select(Learner).where(Learner.attempt_id == attempt.id))
    }
    peers = [rows[number] for number in newest.members]
    return RoundAnswer(
        verdict="run",
        round=newest.n,
        restart=newest.restart,
        reason=newest.reason,
        peers=[Peer(rank=peer.rank, address=peer.address, ports=peer.ports or [], phase=peer.phase) for peer in peers],
    )
