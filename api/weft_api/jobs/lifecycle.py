"""The verbs on a job that exists: each sets what is desired, and the workers converge to it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import update
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.access.budgets import refuse_without_limit
from weft_api.access.lookups import find_job
from weft_api.checkpoints.service import checkpoint_store
from weft_api.context import Context
from weft_api.http.idempotency import Once
from weft_api.http.problems import CONFLICT, Problem
from weft_api.jobs.schemas import JobView, KeepaliveAnswer, RerunBody
from weft_api.jobs.service import show_job
from weft_api.jobs.submission import Submission
from weft_api.jobs.submit import BeginsWith, Submitted, submit
from weft_core.lifecycle.states import TERMINAL
from weft_core.manifest import Credentials, Manifest, manifest_text
from weft_core.store import jobs
from weft_core.store.credentials import unseal
from weft_core.store.models import Attempt, Job, Secret
from weft_core.store.packages import renew_overlay
from weft_core.store.scope import Scope


def halt(context: Context, who: Principal, job_id: str, grace_seconds: int | None, once: Once) -> JobView:
    def ask(session: Session, job: Job) -> None:
        jobs.request_halt(session, job, who.user_id)
        if grace_seconds is not None:
            open_attempt = who.scope(session).find(Attempt, Attempt.job_id == job.id, Attempt.ended_at.is_(None))
            if open_attempt is not None:
                session.execute(
                    update(Attempt).where(Attempt.id == open_attempt.id).values(grace_seconds=grace_seconds)
                )

    return _change(context, who, job_id, ask, once)


def resume(context: Context, who: Principal, job_id: str, once: Once) -> JobView:
    builds: list[str] = []

    def ask(session: Session, job: Job) -> None:
        ended = job.state in TERMINAL
        jobs.request_resume(session, job, who.user_id)
        if ended:
            _charge_to(who, job)
        if overlay := renew_overlay(who.scope(session), job):
            builds.append(overlay.job_id)

    view = _change(context, who, job_id, ask, once)
    for build in builds:
        context.wake.job(build)
    return view


def _charge_to(who: Principal, job: Job) -> None:
    """From here on, the job is charged to the budget of the caller, if there is one."""
    if (missing := refuse_without_limit(who, job.manifest, job.learners)) is not None:
        raise Problem(CONFLICT, f"{missing.path} is {missing.message}; rerun the job with {missing.accepted}")
    job.budget_id = who.budget


def keep_alive(context: Context, who: Principal, job_id: str) -> KeepaliveAnswer:
    with context.database.transaction() as session:
        job = find_job(who.scope(session), job_id, lock=True)
        jobs.keep_alive(job)
        session.flush()
        session.refresh(job)
        return KeepaliveAnswer(until=job.keepalive_until)


def delete(context: Context, who: Principal, job_id: str) -> JobView:
    def ask(session: Session, job: Job) -> None:
        jobs.request_delete(session, job, who.user_id)

    return _change(context, who, job_id, ask)


def _change(
    context: Context, who: Principal, job_id: str, verb: Callable[[Session, Job], None], once: Once | None = None
) -> JobView:
    with context.database.transaction() as session:
        scope = who.scope(session)
        job = find_job(scope, job_id, lock=True)
        if once is None or once.seen(scope) is None:
            verb(session, job)
        if once is not None:
            once.claim(scope, job_id)
        session.flush()
        session.refresh(job)
        view = show_job(scope, who, job)
    context.wake.job(job_id)
    return view


def rerun(context: Context, who: Principal, job_id: str, asked: RerunBody, once: Once) -> Submitted:
    """Submit the job again, with its code and credentials, and on request with a copy of one of its checkpoints.

    Raises:
        ManifestError, Problem: its manifest, or the one that is given instead, is not acceptable (any more).
        Problem, StoreError: there is no checkpoint, or it can't be copied.
    """
    with context.database.transaction() as session:
        scope = who.scope(session)
        job = find_job(scope, job_id)
        if job.desired == "DELETED":
            raise Problem(CONFLICT, "the job is being deleted")
        manifest = Manifest.model_validate(job.manifest)
        manifest = manifest.model_copy(update={"after": []})  # it starts again now
        if asked.code_sha256 is not None:  # it takes the place of a repository
            manifest = manifest.model_copy(update={"repo": None})
        submission = Submission(
            asked.manifest if asked.manifest is not None else manifest_text(manifest),
            asked.code_sha256 or job.code_sha256,
            overrides=asked.set,
            credentials=credentials_of(context, scope, job),
            trigger=manifest.trigger or {},
        )
        begins_with = None
        if asked.from_checkpoint:
            wanted = asked.from_checkpoint if isinstance(asked.from_checkpoint, str) else None
            begins_with = BeginsWith(job_id, checkpoint_store(context, session, job), wanted)
    return submit(context, who, submission, once, rerun_of=job_id, begins_with=begins_with)


def credentials_of(context: Context, scope: Scope, job: Job) -> dict[tuple[str, str], Credentials]:
    """The credentials that came with the job's manifest, by data store id and endpoint."""
    manifest = Manifest.model_validate(job.manifest)
    places = {
        jobs.credentials_name(job.id, store.id): (store.id, store.connection.auth_url)
        for store in manifest.data_stores
        if store.connection is not None
    }
    kept = scope.all(scope.select(Secret, Secret.job_id == job.id))
    return {places[secret.name]: unseal(context.box, secret.ciphertext) for secret in kept if secret.name in places}
