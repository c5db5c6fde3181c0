"""Experiments: each name of a job is one, whose runs are the jobs of this name; users may create more.

A learner knows one experiment, its job's, under whatever name the program gives it: what a job logs stays in the job.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func

from weft_api.http.problems import NOT_FOUND, Problem
from weft_api.mlflow.filters import Field
from weft_api.mlflow.values import pairs, refused
from weft_core.store.models import Job, MlflowExperiment
from weft_core.store.scope import Scope

DEFAULT_ID, DEFAULT_NAME = "0", "Default"
"""MLflow's own, for programs that name no experiment."""


@dataclass(frozen=True)
class Experiment:
    id: str
    name: str
    tags: dict[str, Any]
    created: int
    updated: int
    deleted: bool = False

    @classmethod
    def of(cls, row: MlflowExperiment) -> Experiment:
        return cls(row.id, row.name, row.tags, _ms(row.created_at), _ms(row.updated_at), row.deleted_at is not None)

    @property
    def answer(self) -> dict[str, Any]:
        return {
            "experiment_id": self.id,
            "name": self.name,
            "artifact_location": "mlflow-artifacts:/",
            "lifecycle_stage": "deleted" if self.deleted else "active",
            "creation_time": self.created,
            "last_update_time": self.updated,
            "tags": pairs(self.tags),
            "workspace": "default",  # MLflow's name where there are none
        }

    def field(self, of: Field) -> Any:
        if of.kind == "tags":
            return self.tags.get(of.name)
        known = {
            "name": self.name,
            "experiment_id": self.id,
            "creation_time": self.created,
            "last_update_time": self.updated,
        }
        if of.kind != "attributes" or of.name not in known:
            raise refused(f"Invalid attribute key '{of.name}' specified. Valid keys are {sorted(known)} and tags")
        return known[of.name]


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def experiment_id(name: str) -> str:
    """The id of the experiment that the jobs with this name are in."""
    return DEFAULT_ID if name == DEFAULT_NAME else hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()


def in_experiments(*wanted: str) -> ColumnElement[bool]:
    """Whether a job is in one of these experiments; as an index has it."""
    default = hashlib.md5(DEFAULT_NAME.encode(), usedforsecurity=False).hexdigest()
    return func.md5(Job.name).in_(
        [default if experiment == DEFAULT_ID else experiment for experiment in wanted if experiment != default]
    )


def experiments_of_jobs(scope: Scope, *conditions: Any, most: int) -> list[Experiment]:
    query = (
        scope.select(Job, Job.kind == "train", *conditions)
        .group_by(Job.name)
        .order_by(func.max(Job.created_at).desc())
        .limit(most)
    )
    rows = scope.session.execute(query.with_only_columns(Job.name, func.min(Job.created_at), func.max(Job.created_at)))
    return [Experiment(experiment_id(name), name, {}, _ms(first), _ms(last)) for name, first, last in rows]


def find_experiment(scope: Scope, wanted: str) -> Experiment:
    """Raises Problem not_found."""
    row = scope.find(MlflowExperiment, MlflowExperiment.id == wanted)
    if row is not None:
        return Experiment.of(row)
    if wanted == DEFAULT_ID:
        return Experiment(DEFAULT_ID, DEFAULT_NAME, {}, 0, 0)
    for found in experiments_of_jobs(scope, in_experiments(wanted), most=1):
        return found
    raise Problem(NOT_FOUND, f"No Experiment with id={wanted[:100]} exists")


def find_by_name(scope: Scope, name: str) -> Experiment | None:
    row = scope.find(MlflowExperiment, MlflowExperiment.name == name)
    if row is not None:
        return Experiment.of(row)
    if name != DEFAULT_NAME and not experiments_of_jobs(
        scope, in_experiments(experiment_id(name)), Job.name == name, most=1
    ):
        return None
    return find_experiment(scope, experiment_id(name))


def active_experiment(scope: Scope, wanted: str) -> Experiment:
    """Raises Problem."""
    found = find_experiment(scope, wanted)
    if found.deleted:
        raise refused(f"The experiment {wanted} must be in the 'active' state. Current state is deleted.")
    return found
