"""The reports and the grants of learners. Each call is one transaction; the wake-up follows its commit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import case, func, or_, select, update
from sqlalchemy.orm import Session

from weft_api.access.attempts import (
    AttemptToken,
    fence,
    granted_learner,
    open_attempt,
    own_learner,
    present_learner,
    stale,
)
from weft_api.context import Context
from weft_api.http.audited import about, acting
from weft_api.http.problems import ALREADY_GRANTED, CONFLICT, Problem
from weft_api.learner.schemas import (
    AddressCall,
    ExitCall,
    HeartbeatAnswer,
    HeartbeatCall,
    IdentityTokenCall,
    Kept,
    Peer,
    Peers,
    PhaseCall,
    ProfileCall,
    StacksCall,
    StartCall,
    StoreKeysCall,
    StoringAnswer,
    StoringCall,
)
from weft_api.learner.spec import SpecBuilder
from weft_api.storage.locations import StoreGone
from weft_api.storage.temporary_keys import TEMPORARY_KEYS
from weft_core.launch import IdentityToken, LearnerSpec, StoreKeys
from weft_core.lifecycle.advance import advance
from weft_core.lifecycle.leftovers import leftover_events
from weft_core.lifecycle.states import Desired, JobState, LearnerPhase
from weft_core.lifecycle.storing import may_store
from weft_core.secrets import SecretsUnreadable
from weft_core.store import jobs
from weft_core.store.models import ActorKind, Attempt, Job, Learner, Project
from weft_core.store.rounds import read_rounds
from weft_core.store.scope import Scope
from weft_core.tracing import Attribute
from weft_core.words import describe_exit, duration

_BUSY_PERCENT = 5
"""The use of a CPU or a GPU below which a learner counts as idle."""


def _advance(learner: Learner, phase: LearnerPhase) -> None:
    """Phases only go forward: a call that was overtaken by a later one changes nothing."""
    if LearnerPhase(learner.phase).order < phase.order:
        learner.phase = phase.value
        learner.phase_since = func.now()
    learner.heartbeat_at = func.now()


def _advance_job(session: Session, job: Job, attempt: Attempt) -> bool:
    """Bring the job into the state that its learners' phases mean by now, with the report that this transaction notes.

    Not while a worker steps the job, as its view of the job would be outdated and it could not know; and not where a
    step has more to see to: a condition that may be over, a request, an elastic gang's rounds.

    Returns:
        Whether it has advanced. Else a worker must look.
    """
    if job.lease_token is not None or job.condition is not None or job.desired != Desired.RUNNING:
        return False
    if job.manifest.get("elastic"):
        return False
    phases = session.scalars(select(Learner.phase).where(Learner.attempt_id == attempt.id))
    further = advance(JobState(job.state), [LearnerPhase(phase) for phase in phases])
    if further is not None:
        jobs.transition(session, job, further.state, further.reason)
    return further is not None


def _wake(context: Context, job: Job, advanced: bool) -> None:
    """After the commit."""
    if advanced:
        context.wake.changed(job.id)
    else:
        context.wake.job(job.id)


def start(context: Context, token: AttemptToken, call: StartCall) -> LearnerSpec:
    """The start grant: one agent for each rank of an attempt, no agent for an attempt that is to stop.

    Raises:
        Problem: stale_attempt, already_granted.
    """
    failure: str | None = None
    spec: LearnerSpec | None = None
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=True)
        learner = own_learner(session, attempt, call.rank)
        if learner.instance is not None and learner.instance != call.instance:
            raise Problem(ALREADY_GRANTED, f"another agent holds the start grant of rank {call.rank}")
        if attempt.stop_requested_at is not None or attempt.outcome is not None:
            raise stale(f"attempt {attempt.n} of job {attempt.job_id} is to stop")
        if learner.phase == LearnerPhase.EXITED:
            raise stale(f"rank {call.rank} of attempt {attempt.n} has exited")
        if learner.left_at is not None:
            raise stale(f"the others go on without learner {call.rank + 1}: {learner.left_reason}")
        if learner.instance is None:
            learner.instance = call.instance
            learner.started_at = func.now()
            _trace_start(context, session, job, attempt, learner)
        _advance(learner, LearnerPhase.STARTED)
        _act(session, attempt)
        attempt_id = attempt.id
        try:
            spec = SpecBuilder(context, Scope(session, attempt.project_id), job, attempt).build(call.rank)
        except (StoreGone, SecretsUnreadable) as error:
            # The agent could say no more than this either, so it is said here, where the workers look.
            failure = str(error)
            _exit(learner, 1, failure, "")
        advanced = failure is None and _advance_job(session, job, attempt)
        if not advanced:
            jobs.due(job)
    _wake(context, job, advanced)
    if spec is None:
        raise stale(f"the learner can't start: {failure}")
    return spec.model_copy(update={"store_keys": TEMPORARY_KEYS.of(context).for_learner(spec, attempt_id)})


def renew_store_keys(context: Context, token: AttemptToken, call: StoreKeysCall) -> StoreKeys:
    """New temporary keys for the learner's inputs and results, as long as the attempt lasts.

    Raises:
        Problem: stale_attempt; conflict, if it has got no such keys.
        StoreError: the store issues none just now.
    """
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=False)
        granted_learner(session, attempt, call.rank, call.instance)
        attempt_id = attempt.id
        try:
            spec = SpecBuilder(context, Scope(session, attempt.project_id), job, attempt).build(call.rank)
        except (StoreGone, SecretsUnreadable) as error:
            raise Problem(CONFLICT, f"there are no keys any more: {error}") from error
    keys = TEMPORARY_KEYS.of(context).for_learner(spec, attempt_id)
    if keys is None:
        raise Problem(CONFLICT, "this learner's stores issue no temporary keys")
    return keys


def renew_identity_token(context: Context, token: AttemptToken, call: IdentityTokenCall) -> IdentityToken:
    """A new identity token, as long as the attempt lasts.

    Raises:
        Problem: stale_attempt; conflict, if the learner gets none.
    """
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=False)
        present_learner(session, attempt, call.rank, call.instance, lock=False)
        try:
            found = SpecBuilder(context, Scope(session, attempt.project_id), job, attempt).identity(call.rank)
        except SecretsUnreadable as error:
            raise Problem(CONFLICT, f"there is no identity token any more: {error}") from error
    if found is None:
        raise Problem(CONFLICT, "this learner gets no identity token")
    return found


def _act(session: Session, attempt: Attempt) -> None:
    """For the audit trail, which records the starts that hand out secrets."""
    project = session.scalar(select(Project.name).where(Project.id == attempt.project_id)) or ""
    acting(ActorKind.LEARNER, token_id=attempt.id, project=(attempt.project_id, project))
    about("job", attempt.job_id)


def _trace_start(context: Context, session: Session, job: Job, attempt: Attempt, learner: Learner) -> None:
    """What lies between its launch and this: the image, the machine, the agent's own start."""
    if job.traceparent and learner.launched_at:
        now = session.execute(select(func.now())).scalar_one()
        attributes: dict[str, Attribute] = {"job": job.id, "attempt": attempt.n, "learner": learner.rank + 1}
        context.tracing.record("start learner", job.traceparent, learner.launched_at, now, **attributes)


def address(context: Context, token: AttemptToken, call: AddressCall) -> None:
    with context.database.transaction() as session:
        learner = granted_learner(session, open_attempt(session, token), call.rank, call.instance)
        learner.address, learner.ports = call.address, call.ports
        learner.heartbeat_at = func.now()


def peers(context: Context, token: AttemptToken, rank: int, phase: LearnerPhase | None) -> Peers:
    """All learners of the attempt as they are now."""
    with context.database.transaction() as session:
        attempt = open_attempt(session, token)
        own_learner(session, attempt, rank, lock=False)
        rows = session.scalars(select(Learner).where(Learner.attempt_id == attempt.id).order_by(Learner.rank)).all()
    ready = all(
        row.address is not None and (phase is None or LearnerPhase(row.phase).order >= phase.order) for row in rows
    )
    return Peers(
        ready=ready,
        peers=[Peer(rank=row.rank, address=row.address, ports=row.ports or [], phase=row.phase) for row in rows],
    )


def phase(context: Context, token: AttemptToken, call: PhaseCall) -> None:
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=True)
        learner = granted_learner(session, attempt, call.rank, call.instance)
        _advance(learner, LearnerPhase(call.phase))
        if learner.phase == LearnerPhase.PROCESSING and job.started_at is None:
            job.started_at = func.now()  # here, as a short job may be past it before a worker looks
        if call.address:
            learner.address, learner.ports = call.address, call.ports
        if call.inputs and call.rank == 0:
            attempt.inputs = call.inputs.model_dump(exclude_none=True)
        if call.message:
            jobs.record_event(
                session,
                job,
                "learner",
                f"learner {call.rank + 1}: {call.message}",
                attempt=attempt.n,
                data={"learner": call.rank + 1, "phase": call.phase}
                | ({"checkpoint": call.checkpoint.model_dump()} if call.checkpoint else {}),
            )
        if call.kept and learner.kept_until is None:
            _keep(session, job, attempt, learner, call.kept)
        if call.checkpoint and (call.rank == 0 or attempt.started_from is None):
            attempt.started_from = call.checkpoint.model_dump()
        # A download decides nothing: the learner's start has made the job DOWNLOADING.
        decides = call.phase != LearnerPhase.DOWNLOADING
        if decides:
            jobs.due(job)
    if decides:
        context.wake.job(job.id)
    else:
        context.wake.changed(job.id)


def _keep(session: Session, job: Job, attempt: Attempt, learner: Learner, kept: Kept) -> None:
    learner.exit_code, learner.exit_reason, learner.last_lines = kept.exit_code, kept.reason, "\n".join(kept.last_lines)
    learner.exited_at = func.now()
    learner.kept_until = func.now() + timedelta(seconds=kept.seconds)
    number = learner.rank + 1
    jobs.record_event(
        session,
        job,
        "warning",
        f"learner {number}: {kept.reason or describe_exit(kept.exit_code)}; it stays for {duration(kept.seconds)} for "
        f"a look inside (weft shell {job.id} --learner {number}; weft halt {job.id} ends it)",
        attempt=attempt.n,
        data={"learner": number, "kept_seconds": kept.seconds},
    )


def heartbeat(context: Context, token: AttemptToken, call: HeartbeatCall) -> HeartbeatAnswer:
    """Note one heartbeat. Raises Problem stale_attempt."""
    before = func.coalesce(Learner.heartbeat_at, func.now())
    silent = before < func.now() - timedelta(seconds=context.settings.timings.silence)
    beat = (
        update(Learner)
        .where(
            Learner.attempt_id == Attempt.id,
            Attempt.token_sha256 == token.sha256,
            Attempt.ended_at.is_(None),
            Learner.rank == call.rank,
            Learner.instance == call.instance,
            # A learner whose workers have failed, and that was ordered to leave, still sends its log.
            or_(Learner.left_at.is_(None), Learner.broken.is_not(None)),
        )
        .values(
            heartbeat_at=func.now(),
            heard_since=case((silent, func.now()), else_=Learner.heard_since),
            wrote=call.wrote,
            idle_since=_ago(call.idle_seconds),
            still_since=_ago(call.still_seconds),
            pause_seconds=call.pause_seconds,
            **({"saved_at": _ago(call.saved_seconds)} if call.saved_seconds is not None else {}),
            **({"active_at": func.now()} if works(call.system) else {}),
        )
        .returning(Attempt.stop_requested_at, Attempt.grace_seconds, Attempt.stalled_at, Attempt.look_at)
        .execution_options(synchronize_session=False)
    )
    with context.database.transaction() as session:
        row: Any = session.execute(beat).one_or_none()
        if row is None:
            present_learner(session, open_attempt(session, token), call.rank, call.instance)  # says what is wrong
            raise stale("the attempt has ended")
    return heartbeat_answer(context, *row)


def heartbeat_answer(
    context: Context, stop: datetime | None, grace: int | None, stalled: datetime | None, looks: datetime | None
) -> HeartbeatAnswer:
    """What an agent learns of its attempt, from the attempt's row."""
    dump = stalled.isoformat() if stalled else None
    look = looks.isoformat() if looks and stalled is None else None
    if stop is None:
        return HeartbeatAnswer(stop=False, grace_seconds=None, dump=dump, look=look)
    default = int(context.settings.timings.grace)
    return HeartbeatAnswer(stop=True, grace_seconds=default if grace is None else grace, dump=dump, look=look)


def _ago(seconds: float | None) -> Any:
    """A time by the database's clock."""
    return None if seconds is None else func.now() - func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def works(system: dict[str, Any] | None) -> bool:
    """Whether a learner's processes use a CPU or a GPU. The learner may send anything."""
    told = system or {}
    devices = told.get("gpus")
    loads = [told.get("cpu_percent"), *(device.get("percent") for device in _mappings(devices))]
    return any(isinstance(load, int | float) and load >= _BUSY_PERCENT for load in loads)


def _mappings(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def stacks(context: Context, token: AttemptToken, call: StacksCall) -> None:
    """Keep them until the workers have judged them. A report about an earlier stall is of no use."""
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=True)
        learner = granted_learner(session, attempt, call.rank, call.instance)
        asked = attempt.stalled_at or attempt.look_at
        if asked is None or call.request != asked.isoformat() or attempt.verdict is not None:
            return
        learner.stacks, learner.stacks_at = call.report.model_dump(mode="json", exclude_defaults=True), func.now()
        jobs.due(job)
    context.wake.job(job.id)


def profile(context: Context, token: AttemptToken, call: ProfileCall) -> None:
    """Add it to the job's history."""
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=False)
        learner = granted_learner(session, attempt, call.rank, call.instance)
        message = f"profile {call.profile} of learner {learner.rank + 1}: {call.text}"
        data = {"profile": call.profile, "learner": learner.rank + 1}
        jobs.record_event(session, job, "profile", message, attempt=attempt.n, data=data)


def storing(context: Context, token: AttemptToken, call: StoringCall) -> StoringAnswer:
    """The storing grant (weft_core.lifecycle.storing). The leader is rank 0, of an elastic attempt's last round."""
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=True)
        learner = granted_learner(session, attempt, call.rank, call.instance)
        if learner.phase == LearnerPhase.EXITED:
            raise stale(f"rank {call.rank} of attempt {attempt.n} has exited")
        if learner.left_at is not None:
            return StoringAnswer(granted=False, wait=False)
        asked_before = learner.phase == LearnerPhase.STORING and learner.exit_code == call.exit_code
        learner.exit_code = call.exit_code
        _advance(learner, LearnerPhase.STORING)
        others = select(Learner).where(
            Learner.attempt_id == attempt.id, Learner.rank != call.rank, Learner.left_at.is_(None)
        )
        leader = _leader(session, attempt)
        # Learners of an elastic attempt that never joined a round don't count.
        count = [other for other in session.scalars(others) if leader is None or other.arrived is not None]
        stopping = attempt.stop_requested_at is not None or attempt.outcome is not None
        granted = may_store(call.exit_code, count, leads=call.rank == (leader or 0), stopping=stopping)
        if granted and learner.storing_at is None:
            learner.storing_at = func.now()
        if not asked_before:
            learner.active_at = func.now()  # its program has just ended: so far, the others may have waited for it
            if not (advanced := _advance_job(session, job, attempt)):
                jobs.due(job)
    if not asked_before:
        _wake(context, job, advanced)
    return StoringAnswer(granted=granted, wait=not granted)


def _leader(session: Session, attempt: Attempt) -> int | None:
    """The rank whose results are the model: the leader of an elastic attempt's last round. None without rounds."""
    last = next((past for past in reversed(read_rounds(session, attempt.id)) if not past.open), None)
    return last.members[0] if last else None


def exited(context: Context, token: AttemptToken, call: ExitCall) -> None:
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=True)
        learner = granted_learner(session, attempt, call.rank, call.instance)
        if learner.phase == LearnerPhase.EXITED:
            return
        _exit(learner, call.exit_code, call.reason, "\n".join(call.last_lines))
        if call.outputs and call.rank == (_leader(session, attempt) or 0):
            attempt.outputs = call.outputs.model_dump()
        if call.leftovers:
            learner.leftovers = call.leftovers.model_dump()
            for kind, message in leftover_events(call.rank + 1, learner.leftovers):
                about = {"learner": call.rank + 1, "leftovers": learner.leftovers}
                jobs.record_event(session, job, kind, message, attempt=attempt.n, data=about)
        jobs.due(job)
    context.wake.job(job.id)


def _exit(learner: Learner, exit_code: int, reason: str, last_lines: str) -> None:
    learner.exit_code, learner.exit_reason, learner.last_lines = exit_code, reason, last_lines
    if learner.kept_until is None:  # else its command had ended before
        learner.exited_at = func.now()
    _advance(learner, LearnerPhase.EXITED)
