"""From a submission to a job: everything that can be refused is refused first, then one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_job
from weft_api.checkpoints.service import (
    CheckpointStore,
    copy_checkpoint,
    discard,
    own_checkpoint_store,
    users_checkpoint_store,
)
from weft_api.code.service import find_code, record_code, store_code
from weft_api.context import Context
from weft_api.http.audited import about
from weft_api.http.idempotency import Once
from weft_api.http.problems import CODE_MISSING, NOT_FOUND, Problem
from weft_api.http.spool import Spooled
from weft_api.jobs.checks import Checks, ask_stores, look_up, refuse_code_and_repository, refuse_missing_code
from weft_api.jobs.notifications import check_webhooks, look_up_targets
from weft_api.jobs.packages import read_package_request
from weft_api.jobs.repositories import pin_repository
from weft_api.jobs.schemas import JobView
from weft_api.jobs.service import show_job, show_new_job
from weft_api.jobs.submission import Submission
from weft_api.storage.checker import CHECKER
from weft_api.storage.clients import users_store
from weft_api.storage.locations import checkpoints_in
from weft_core.bundle import BundleInfo
from weft_core.ids import new_id
from weft_core.manifest import Manifest, ParsedManifest, parse_manifest, refuse_schedule, refuse_sweep
from weft_core.packages import PackageRequest
from weft_core.service_log import note
from weft_core.store import jobs
from weft_core.store.models import Job
from weft_core.store.scope import Scope
from weft_core.store.submitting import insert_job, job_row


@dataclass(frozen=True)
class Submitted:
    job: JobView
    replayed: bool = False
    """It is the job of an earlier request with the same Idempotency-Key."""


@dataclass(frozen=True)
class Checked:
    """A submission that has passed all checks."""

    parsed: ParsedManifest
    """With its repository pinned."""
    info: BundleInfo | None
    """Of the code that came with it."""
    packages: PackageRequest | None
    warnings: list[str]
    pretrained_id: str | None


@dataclass(frozen=True)
class BeginsWith:
    """A job, where its checkpoints are, and which of them; None: the last."""

    job_id: str
    store: CheckpointStore
    generation: str | None


def submit(
    context: Context,
    who: Principal,
    submission: Submission,
    once: Once,
    rerun_of: str | None = None,
    begins_with: BeginsWith | None = None,
    bring_code: Callable[[Context, str, Spooled], BundleInfo] = store_code,
    until: float | None = None,
    needs_code: bool = False,
) -> Submitted:
    """Make a job.

    Args:
        rerun_of: the job that it repeats.
        begins_with: the checkpoint of another job that it gets a copy of.
        bring_code: checks the code that came with it, and brings it to the store.
        until: when the users' stores must have been asked, by :func:`time.monotonic`.
        needs_code: refuse a command that runs a file of the code when no code comes with it.

    Raises:
        ManifestError, BundleError, Problem: it can't be one.
        StoreError: the installation's store is away; nothing has been made.
    """
    # One short transaction for all questions to the database; the stores are asked outside of it.
    with context.database.transaction() as session:
        scope = who.scope(session)
        if (earlier := once.seen(scope)) is not None:
            return Submitted(_earlier(scope, who, earlier), replayed=True)
        parsed = read_manifest(context, submission)
        refuse_sweep(parsed, "a sweep is many jobs: `weft sweep` submits it (POST /api/v1/sweeps)")
        refuse_schedule(parsed, "the job would start now: `weft schedule create` stores it (POST /api/v1/schedules)")
        checks = look_up_all(context, scope, who, submission, parsed, needs_code)
    checked = check(context, who, submission, parsed, checks, bring_code, until)
    manifest = checked.parsed.manifest
    job_id = new_id("job")
    checkpoint = target = None
    if begins_with:
        target = _checkpoints(context, who, checks, manifest, job_id)
        checkpoint = copy_checkpoint(begins_with.store, target, begins_with.job_id, begins_with.generation)
    code, pinned = submission.code_sha256, checked.pretrained_id
    job = job_row(job_id, who.user_id, manifest, code, rerun_of=rerun_of, pretrained_id=pinned, budget_id=who.budget)
    job.checkpoint_of = checkpoint
    try:
        submitted = _insert(context, who, submission, once, checked, job)
    except Exception:
        if target:
            discard(target)
        raise
    if submitted.replayed and target:
        discard(target)
    return submitted


def read_manifest(context: Context, submission: Submission) -> ParsedManifest:
    """Raises ManifestError."""
    parsed = parse_manifest(
        submission.manifest,
        context.settings,
        overrides=submission.overrides,
        credentials=submission.credentials,
    )
    if not submission.trigger:
        return parsed
    return replace(parsed, manifest=parsed.manifest.model_copy(update={"trigger": dict(submission.trigger)}))


def look_up_all(
    context: Context,
    scope: Scope,
    who: Principal,
    submission: Submission,
    parsed: ParsedManifest,
    needs_code: bool = False,
) -> Checks:
    """Ask the database about all that a submission names. Raises Problem code_missing; budget_used_up."""
    _check_code(scope, submission)
    checks = look_up(scope, context, who, parsed)
    look_up_targets(scope, context, parsed.manifest, checks)
    has_code = submission.code is not None or submission.code_sha256 is not None
    if has_code and parsed.manifest.repo is not None:
        refuse_code_and_repository(checks)
    if needs_code and not has_code and parsed.manifest.repo is None:
        refuse_missing_code(parsed.manifest.framework.command, checks)
    return checks


def check(
    context: Context,
    who: Principal,
    submission: Submission,
    parsed: ParsedManifest,
    checks: Checks,
    bring_code: Callable[[Context, str, Spooled], BundleInfo] = store_code,
    until: float | None = None,
) -> Checked:
    """Ask the stores, outside any transaction, and bring the code to the installation's own.

    Raises:
        BundleError, Problem, StoreError: see :func:`submit`.
    """
    warnings = check_webhooks(context, CHECKER.of(context), checks)
    warnings += ask_stores(context, CHECKER.of(context), checks, until)
    parsed = pin_repository(context, parsed, checks)
    info = bring_code(context, who.project_id, submission.code) if submission.code else None
    packages = read_package_request(context, who.project_id, parsed.manifest, submission, checks)
    return Checked(parsed, info, packages, warnings, checks.pinned.id if checks.pinned else None)


def _checkpoints(context: Context, who: Principal, checks: Checks, manifest: Manifest, job_id: str) -> CheckpointStore:
    """Where the job's checkpoints will be."""
    results = next((container for container in checks.containers if container.path.endswith(".training_results")), None)
    if manifest.results_place is None or results is None:
        return own_checkpoint_store(context, who.project_id, job_id)
    with users_store():
        return users_checkpoint_store(context, checkpoints_in(results.opened, results.place, job_id))


def _earlier(scope: Scope, who: Principal, job_id: str) -> JobView:
    about("job", job_id)
    try:
        return show_job(scope, who, find_job(scope, job_id))
    except Problem as problem:
        if problem.kind is NOT_FOUND:
            raise Problem(
                NOT_FOUND, f"this Idempotency-Key made the job {job_id}, which has been deleted since; send a new key"
            ) from None
        raise


def _check_code(scope: Scope, submission: Submission) -> None:
    if submission.code_sha256 and find_code(scope, submission.code_sha256) is None:
        raise Problem(
            CODE_MISSING,
            f"no code bundle with the sha256 {submission.code_sha256} in this project: "
            "PUT it to /api/v1/code/{sha256} first",
        )


def _insert(
    context: Context,
    who: Principal,
    submission: Submission,
    once: Once,
    checked: Checked,
    job: Job,
) -> Submitted:
    job_id, parsed = job.id, checked.parsed
    with context.database.transaction() as session:
        scope = who.scope(session)
        if (winner := once.claim(scope, job_id)) != job_id:
            return Submitted(_earlier(scope, who, winner), replayed=True)
        if checked.info and submission.code:
            job.code_sha256 = submission.code.sha256
            record_code(scope, submission.code.sha256, checked.info)
        if submission.keepalive is not None:
            job.keepalive_seconds = submission.keepalive.seconds
            job.idle_seconds = submission.keepalive.idle_seconds
        job.traceparent = context.tracing.here()
        job.priority, lowered = cap_priority(who, job.priority)
        told = [*checked.warnings, *lowered]
        overlay = insert_job(scope, context.box, job, parsed.manifest, parsed.credentials, checked.packages, told)
        note(job=job.id)
        about("job", job.id)
        if job.checkpoint_of:
            words = _checkpoint_words(job.checkpoint_of)
            jobs.record_event(session, job, "checkpoint", words, data=job.checkpoint_of)
        session.flush()
        view = show_new_job(who, job)
        build = overlay.job_id if overlay is not None else None
    # Only now, as the job is durable; a wake-up that is lost costs a few seconds.
    for due in filter(None, (build, job_id)):
        context.wake.job(due)
    return Submitted(view)


def cap_priority(who: Principal, asked: int) -> tuple[int, list[str]]:
    """The priority ``asked``, or the most that the project gives to members of the user's role; and a warning if it was
    lowered."""
    cap = who.caps.get(who.role, {}).get("priority")
    if cap is None or asked <= cap:
        return asked, []
    return cap, [f"priority {asked} was lowered to {cap}, the most for the role {who.role} in project {who.project}"]


def _checkpoint_words(checkpoint: dict[str, Any]) -> str:
    at, files = checkpoint["at"], checkpoint["files"]
    when = f" of {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC" if isinstance(at, int | float) else ""
    attempt = f" by attempt {checkpoint['attempt']}" if checkpoint["attempt"] else ""
    return f"begins with the checkpoint{when}{attempt} of {checkpoint['job']}: {files} file{'' if files == 1 else 's'}"
