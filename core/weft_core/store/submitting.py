"""The insertion of a job with all that belongs to it, in one transaction. Submissions and sweeps make jobs so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft_core.ids import new_id
from weft_core.manifest import Credentials, Manifest
from weft_core.packages import PackageRequest
from weft_core.secrets import SecretBox
from weft_core.store import jobs
from weft_core.store.credentials import seal
from weft_core.store.models import Job, Overlay, Secret
from weft_core.store.packages import attach_overlay
from weft_core.store.predecessors import add_predecessors
from weft_core.store.scope import Scope


def job_row(
    job_id: str,
    user_id: str,
    manifest: Manifest,
    code_sha256: str | None,
    *,
    labels: Mapping[str, str] | None = None,
    rerun_of: str | None = None,
    pretrained_id: str | None = None,
    budget_id: str | None = None,
) -> Job:
    """The row of a new job. ``labels`` are in addition to the manifest's."""
    return Job(
        id=job_id,
        user_id=user_id,
        name=manifest.name,
        labels={**manifest.labels, **(labels or {})},
        manifest=manifest.model_dump(mode="json", exclude_none=True),
        code_sha256=code_sha256,
        engine=manifest.engine,
        priority=manifest.priority,
        learners=manifest.learners,
        retries=manifest.retries,
        rerun_of=rerun_of,
        pretrained_id=pretrained_id,
        budget_id=budget_id,
    )


def insert_job(
    scope: Scope,
    box: SecretBox,
    job: Job,
    manifest: Manifest,
    credentials: Mapping[str, Credentials],
    packages: PackageRequest | None = None,
    warnings: Sequence[str] = (),
) -> Overlay | None:
    """Insert a job as QUEUED, with its credentials, its overlay and its first events. Wake the workers after the
    commit, also for the job that builds the overlay.

    Args:
        credentials: of the manifest's connections, by the id of the data store.
        packages: what the job needs besides its image's packages; None: nothing.
        warnings: become events.

    Returns:
        The job's overlay.
    """
    session = scope.session
    jobs.submit(scope, job, manifest.notes)
    add_predecessors(scope, job, manifest.after)
    for store, kept in credentials.items():
        name = jobs.credentials_name(job.id, store)
        scope.add(Secret(id=new_id("sec"), name=name, job_id=job.id, ciphertext=seal(box, kept)))
    overlay = None
    if packages is not None:
        repeated = scope.find(Job, Job.id == job.rerun_of) if job.rerun_of else None
        overlay = attach_overlay(scope, job, packages, repeated)
    if (repository := manifest.repo) is not None:
        jobs.record_event(session, job, "code", f"the code is {repository.words}", data=repository.model_dump())
    for warning in warnings:
        jobs.record_event(session, job, "warning", warning)
    return overlay
