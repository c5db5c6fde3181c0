"""The names of versions in views of jobs."""

from __future__ import annotations

from collections.abc import Iterable

from weft_core.store.models import Job, Model, ModelVersion
from weft_core.store.scope import Scope


def model_names(scope: Scope, ids: Iterable[str]) -> dict[str, str]:
    """Names by the models' ids."""
    wanted = set(ids)
    return {model.id: model.name for model in scope.all(scope.select(Model, Model.id.in_(wanted)))} if wanted else {}


def registered_as(scope: Scope, job: Job) -> list[str]:
    """The versions that the job's results are."""
    return _references(scope, scope.all(scope.select(ModelVersion, ModelVersion.job_id == job.id)))


def started_from(scope: Scope, job: Job) -> str | None:
    """The version that the job's pretrained model is, as it was resolved at submission; None: none, or deleted."""
    row = scope.find(ModelVersion, ModelVersion.id == job.pretrained_id) if job.pretrained_id else None
    return _references(scope, [row])[0] if row else None


def _references(scope: Scope, rows: list[ModelVersion]) -> list[str]:
    names = model_names(scope, (row.model_id for row in rows))
    return sorted(f"{names[row.model_id]}@{row.number}" for row in rows)
