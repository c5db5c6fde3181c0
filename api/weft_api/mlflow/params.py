"""Parameters and tags of jobs, for lists and details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft_core.store.models import MlflowRun
from weft_core.store.scope import Scope


class Logged(NamedTuple):
    params: dict[str, str]
    tags: dict[str, str]


def logged_by(scope: Scope, job_id: str) -> Logged:
    """The parameters and tags that a job has logged."""
    row = scope.find(MlflowRun, MlflowRun.id == job_id)
    return Logged({key: entry[0] for key, entry in sorted(row.params.items())}, row.tags) if row else Logged({}, {})


def params_of(scope: Scope, job_ids: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """These parameters, by job. A job without any has an entry, too."""
    found: dict[str, dict[str, str]] = {job_id: {} for job_id in job_ids}
    if not names:
        return found
    query = scope.select(MlflowRun, MlflowRun.id.in_(job_ids))
    # A run may have thousands, so the database picks them.
    picked = [MlflowRun.params[name][0].astext for name in names]
    for job_id, *values in scope.session.execute(query.with_only_columns(MlflowRun.id, *picked)):
        found[job_id] = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return found
