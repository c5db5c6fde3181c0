"""Runs: a job is a run, whose id is the job's; a job's program may create further ones; others belong to no job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.dialects.postgresql import insert

from weft_api.http.problems import FORBIDDEN, Problem
from weft_api.metrics.schemas import BestAndLast
from weft_api.mlflow.callers import OfLearner
from weft_api.mlflow.calls import Call
from weft_api.mlflow.errors import no_run
from weft_api.mlflow.experiments import experiment_id
from weft_api.mlflow.filters import Field
from weft_api.mlflow.values import MOST_KEPT, pairs, read_number, refused, shown_number
from weft_core.lifecycle.states import JobState
from weft_core.store.models import Job, MlflowRun
from weft_core.store.scope import Scope

NAME_TAG, USER_TAG, PARENT_TAG = "mlflow.runName", "mlflow.user", "mlflow.parentRunId"
STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
_STATUS_OF_JOB = {
    JobState.QUEUED: "SCHEDULED",
    JobState.PENDING: "SCHEDULED",
    JobState.COMPLETED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.HALTED: "KILLED",
}


@dataclass(frozen=True)
class Run:
    """``job`` is the job that the run belongs to, or is. ``row`` is None for a job that has logged metrics only."""

    id: str
    job: Job | None
    row: MlflowRun | None

    @property
    def is_job(self) -> bool:
        return self.job is not None and self.job.id == self.id

    @property
    def kept(self) -> MlflowRun:
        """The row of a run that was found to be written to."""
        assert self.row is not None
        return self.row


@dataclass(frozen=True)
class Seen:
    """A run with what its answer needs from other tables."""

    run: Run
    user: str
    metrics: Mapping[str, BestAndLast]
    """Of a job."""

    @property
    def name(self) -> str:
        row, job = self.run.row, self.run.job
        if row is not None and row.name:
            return row.name
        assert job is not None
        return job.name

    @property
    def status(self) -> str:
        if self.run.is_job and self.run.job:
            return _STATUS_OF_JOB.get(JobState(self.run.job.state), "RUNNING")
        return self.run.kept.status

    @property
    def start_time(self) -> int:
        job = self.run.job
        return int(job.created_at.timestamp() * 1000) if self.run.is_job and job else self.run.kept.start_time

    @property
    def end_time(self) -> int | None:
        job = self.run.job
        if self.run.is_job and job:
            return int(job.ended_at.timestamp() * 1000) if job.ended_at else None
        return self.run.kept.end_time

    @property
    def deleted(self) -> bool:
        return self.run.row is not None and self.run.row.deleted_at is not None

    @property
    def experiment_id(self) -> str:
        return experiment_id(self.run.job.name) if self.run.job else self.run.kept.experiment_id

    @property
    def params(self) -> dict[str, str]:
        return {key: entry[0] for key, entry in self.run.row.params.items()} if self.run.row else {}

    @property
    def tags(self) -> dict[str, str]:
        tags = {USER_TAG: self.user, NAME_TAG: self.name}
        if job := self.run.job:
            tags |= {"weft.job": job.id}
            if self.run.is_job:
                tags |= {"weft.state": job.state, "weft.engine": job.engine}
                tags |= {f"weft.label.{key}": value for key, value in job.labels.items()}
        return tags | (self.run.row.tags if self.run.row else {}) | {NAME_TAG: self.name}

    @property
    def values(self) -> dict[str, tuple[float, int, int]]:
        """(value, step, time) of the newest values."""
        if self.run.is_job:
            return {
                key: (float("nan") if found.last is None else found.last, found.step or 0, found.time or 0)
                for key, found in self.metrics.items()
            }
        return {key: (read_number(value), step, time) for key, (value, step, time) in self.run.kept.metrics.items()}

    @property
    def info(self) -> dict[str, Any]:
        end = self.end_time
        return {
            "run_id": self.run.id,
            "run_uuid": self.run.id,
            "run_name": self.name,
            "experiment_id": self.experiment_id,
            "user_id": self.user,
            "status": self.status,
            "start_time": self.start_time,
            "artifact_uri": artifact_uri(self.run.id),
            "lifecycle_stage": "deleted" if self.deleted else "active",
        } | ({} if end is None else {"end_time": end})

    @property
    def answer(self) -> dict[str, Any]:
        row = self.run.row
        return {
            "info": self.info,
            "data": {
                "metrics": [
                    {"key": key, "value": shown_number(value), "timestamp": time, "step": step}
                    for key, (value, step, time) in sorted(self.values.items())
                ],
                "params": pairs(self.params),
                "tags": pairs(self.tags),
            },
            "inputs": {
                "dataset_inputs": row.inputs.get("datasets", []) if row else [],
                "model_inputs": row.inputs.get("models", []) if row else [],
            },
            "outputs": {"model_outputs": row.outputs if row else []},
        }

    def field(self, of: Field) -> Any:
        if of.kind == "metrics":
            found = self.values.get(of.name)
            return None if found is None else found[0]
        if of.kind == "params":
            return self.params.get(of.name)
        if of.kind == "tags":
            return self.tags.get(of.name)
        if of.kind == "datasets":
            inputs = self.run.row.inputs.get("datasets", []) if self.run.row else []
            if of.name == "context":
                tags = [tag for given in inputs for tag in given.get("tags", [])]
                return [tag["value"] for tag in tags if tag["key"] == "mlflow.data.context"] or None
            return [given["dataset"].get(of.name) for given in inputs] or None
        known = self.info | {"Created": self.start_time, "run_name": self.name}
        if of.name not in known and of.name not in ("end_time", "Run name", "Run ID"):
            raise refused(f"Invalid attribute key '{of.name}' specified. Valid keys are {sorted(known)}")
        return known.get({"Run name": "run_name", "Run ID": "run_id"}.get(of.name, of.name))


def artifact_uri(run_id: str) -> str:
    return f"mlflow-artifacts:/{run_id}"


def own_row(session: Any, job: Job) -> None:
    """Make the row of a job's own run, unless it is there."""
    made = insert(MlflowRun).values(
        id=job.id,
        project_id=job.project_id,
        job_id=job.id,
        experiment_id=experiment_id(job.name),
        user="",
        status="RUNNING",
        start_time=0,
    )
    session.execute(made.on_conflict_do_nothing())


def lock_rows(scope: Scope, run_ids: Collection[str]) -> dict[str, MlflowRun]:
    """The rows of those runs that have one, locked in the order of ids: no two transactions wait for each other."""
    known = [run_id for run_id in run_ids if run_id.isascii()]
    query = scope.select(MlflowRun, MlflowRun.id.in_(known)).order_by(MlflowRun.id).with_for_update()
    return {row.id: row for row in scope.session.scalars(query)}


def find_run(call: Call, run_id: str, *, write: bool = False, locked: Mapping[str, MlflowRun] | None = None) -> Run:
    """The run with this id; with ``write``, its row is locked, and made for a job that has none.

    Args:
        locked: the rows that were locked before.

    Raises:
        Problem: not_found, also for a learner that asks for a run of another job.
    """
    if not run_id.isascii() or len(run_id) > 100:
        raise no_run(run_id)
    scope, learner = call.scope, call.learner
    row = locked.get(run_id) if locked is not None else _row(scope, run_id, lock=write)
    job_id = row.job_id if row else run_id
    if learner and job_id != learner.job.id:
        raise no_run(run_id)
    job = learner.job if learner else scope.find(Job, Job.id == job_id) if job_id else None
    if job is None and row is None:
        raise no_run(run_id)
    if write and job is not None and row is None:
        own_row(call.session, job)
        row = _row(scope, run_id, lock=True)
    if write and row is not None and row.deleted_at is not None:
        raise refused(f"The run {run_id} must be in the 'active' state. Current state is deleted.")
    return Run(run_id, job, row)


def _row(scope: Scope, run_id: str, *, lock: bool) -> MlflowRun | None:
    query = scope.select(MlflowRun, MlflowRun.id == run_id)
    if lock:  # what this transaction has read of it before may be older
        query = query.with_for_update().execution_options(populate_existing=True)
    return scope.session.scalars(query).one_or_none()


def set_tags(run: Run, tags: Mapping[str, str]) -> None:
    """Raises Problem."""
    row = run.kept
    if name := tags.get(NAME_TAG):
        row.name = name
    merged = {**row.tags, **tags}
    if len(merged) > max(MOST_KEPT, len(row.tags)):
        raise refused(f"a run can have {MOST_KEPT} tags")
    row.tags = merged


def set_params(run: Run, params: Iterable[tuple[str, str]], learner: OfLearner | None) -> None:
    """A value that was logged can't be changed, but what a job's first learner logs in its newest attempt counts.

    Raises:
        Problem: a value would change.
    """
    row = run.kept
    now, rank = (learner.attempt, learner.rank) if learner else (0, 0)
    kept = dict(row.params)
    for key, value in params:
        before = kept.get(key)
        if before is None or (learner and (now, -rank) > (before[1], -before[2])):
            kept[key] = [value, now, rank]
        elif before[0] != value:
            shared = learner and run.is_job and (before[1:] != [now, rank] or learner.processes > 1)
            if not shared:
                raise refused(
                    f"Changing param values is not allowed. Param with key='{key}' was already logged with "
                    f"value='{before[0]}' for run ID='{run.id}'. Attempted logging new value '{value}'."
                )
    if len(kept) > max(MOST_KEPT, len(row.params)):
        raise refused(f"a run can have {MOST_KEPT} parameters")
    row.params = kept


def refuse_job(run: Run, what: str) -> None:
    """Raises Problem forbidden."""
    if run.job is not None:
        raise Problem(FORBIDDEN, f"a job's run can't be {what} here; use `weft` for the job {run.job.id}")
