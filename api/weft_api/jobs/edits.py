"""Changes of what users say about a job: its labels, its description, its notes, and whether it is pinned."""

from __future__ import annotations

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_job
from weft_api.context import Context
from weft_api.http.problems import INVALID_REQUEST, FieldProblem, Problem
from weft_api.jobs.schemas import EditBody, JobView
from weft_api.jobs.service import show_job
from weft_core.manifest.labels import label_problems
from weft_core.store.jobs import record_event
from weft_core.store.models import Job


def edit(context: Context, who: Principal, job_id: str, asked: EditBody) -> JobView:
    """Raises Problem invalid_request for labels that no manifest could have."""
    with context.database.transaction() as session:
        scope = who.scope(session)
        job = find_job(scope, job_id, lock=True)
        if changes := _apply(job, asked):
            record_event(session, job, "edited", "; ".join(changes), by=who.user_id)
        session.flush()
        return show_job(scope, who, job)


def _apply(job: Job, asked: EditBody) -> list[str]:
    """The changes, in words."""
    told = []
    labels = _merged(job.labels, asked.labels)
    if labels != job.labels:
        _check(labels)
        gone = [key for key in job.labels if key not in labels]
        added = [f"{key}={value}" for key, value in labels.items() if job.labels.get(key) != value]
        told += [f"labelled {', '.join(added)}"] if added else []
        told += [f"label {', '.join(gone)} removed"] if gone else []
        job.labels = labels
    # Reruns and exports of the manifest have them, too.
    manifest = {**job.manifest, "labels": _merged(job.manifest.get("labels", {}), asked.labels)}
    if asked.description is not None and asked.description != manifest.get("description", ""):
        manifest["description"] = asked.description
        told.append("description changed" if asked.description else "description removed")
    if manifest != job.manifest and told:
        job.manifest = manifest
    if asked.notes is not None and asked.notes != job.notes:
        job.notes = asked.notes
        told.append("notes changed" if asked.notes else "notes removed")
    if asked.pinned is not None and asked.pinned != job.pinned:
        job.pinned = asked.pinned
        told.append("pinned" if asked.pinned else "no longer pinned")
    return told


def _merged(labels: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**labels, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _check(labels: dict[str, str]) -> None:
    if problems := label_problems(labels):
        found = [
            FieldProblem(path=f"body.{p.path}", message=p.message, found=p.found, accepted=p.accepted) for p in problems
        ]
        raise Problem(INVALID_REQUEST, "; ".join(f"body.{p.path}: {p.message}" for p in problems[:3]), found)
