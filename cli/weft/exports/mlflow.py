"""A job's metrics as runs of MLflow, by MLflow's own client."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from weft.errors import WeftError
from weft.models import Attempt
from weft.resources.jobs import Job
from weft.resources.metrics import Point

_METRICS_A_CALL, _PARAMS_A_CALL = 1000, 100
_LONGEST_PARAM = 500
_LARGEST = 1.7976931348623157e308
"""The value for infinity, which MLflow's databases don't support; MLflow itself uses the same."""
_STATUS = {"SUCCEEDED": "FINISHED", "FAILED": "FAILED", "LOST": "FAILED", "HALTED": "KILLED"}


@dataclass(frozen=True)
class MlflowRun:
    """The run for one attempt; ``where`` describes its place for humans."""

    id: str
    attempt: int
    points: int
    where: str


def log_to_mlflow(
    job: Job, names: Sequence[str], tracking_uri: str | None, experiment: str | None, **chosen: Any
) -> list[MlflowRun]:
    """Log each attempt that has metrics as a run.

    A run has the metrics with steps and times, the manifest as params, and the job's id and the attempt's number as
    tags. It replaces the run of an earlier export.

    Args:
        job: the job, from :meth:`weft.resources.jobs.Jobs.get`.
        names: the metrics to export.
        tracking_uri: URI of MLflow; default: MLFLOW_TRACKING_URI.
        experiment: default: MLFLOW_EXPERIMENT_NAME, or the job's name.
        chosen: selects series, as in :class:`weft.resources.metrics.Metrics`.

    Raises:
        WeftError: MLflow is not installed, is not configured, or refuses.
    """
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise WeftError(
            "the URI of MLflow is missing: set MLFLOW_TRACKING_URI, or give --tracking-uri: http://…, sqlite:///…"
        )
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise WeftError("MLflow's client is not installed here: pip install 'weft[mlflow]'") from None
    try:
        client = MlflowClient(tracking_uri=uri)
        name = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or job.name
        found = client.get_experiment_by_name(name)
        experiment_id = found.experiment_id if found else client.create_experiment(name)
        exporter = _Exporter(client, job, experiment_id, f"experiment {name} at {uri}")
        return exporter.export(job.metric_points(names, **chosen))
    except MlflowException as error:
        raise WeftError(f"MLflow at {uri}: {error}") from error
    except ImportError as error:  # mlflow-skinny supports only HTTP
        raise WeftError(f"MLflow at {uri} needs the complete MLflow package ({error}): pip install mlflow") from error


class _Exporter:
    def __init__(self, client: Any, job: Job, experiment_id: str, where: str) -> None:
        self._client = client
        self._job = job
        self._experiment_id = experiment_id
        self._where = where
        self._runs: dict[int, str] = {}
        self._waiting: dict[int, list[Any]] = {}
        self._points: dict[int, int] = {}

    def export(self, points: Iterator[Point]) -> list[MlflowRun]:
        from mlflow.entities import Metric

        for point in points:
            if point.attempt not in self._runs:
                self._runs[point.attempt] = self._begin(point.attempt)
                self._waiting[point.attempt] = []
                self._points[point.attempt] = 0
            at = int(point.time.timestamp() * 1000)
            self._waiting[point.attempt].append(Metric(self._key(point), _storable(point.value), at, point.step))
            self._points[point.attempt] += 1
            if len(self._waiting[point.attempt]) == _METRICS_A_CALL:
                self._send(point.attempt)
        for attempt in self._runs:
            self._send(attempt)
            self._end(attempt)
        return [
            MlflowRun(run, attempt, self._points[attempt], f"{self._where}, run {self._name(attempt)}")
            for attempt, run in sorted(self._runs.items())
        ]

    def _begin(self, attempt: int) -> str:
        """Create a run, which replaces an earlier one; returns its id."""
        tags = {
            "weft.job": self._job.id,
            "weft.attempt": str(attempt),
            "mlflow.user": self._job.user or "",
            "mlflow.note.content": self._job.description,
            **{f"weft.label.{_key(key)}": value for key, value in self._job.labels.items()},
        }
        ours = f"tags.`weft.job` = '{self._job.id}' and tags.`weft.attempt` = '{attempt}'"
        for old in self._client.search_runs([self._experiment_id], ours):
            self._client.delete_run(old.info.run_id)
        of = self._of(attempt)
        begun = of.created_at if of else self._job.created_at
        run = self._client.create_run(
            self._experiment_id,
            start_time=int(begun.timestamp() * 1000) if begun else None,
            tags={key: value for key, value in tags.items() if value},
            run_name=self._name(attempt),
        )
        params = iter(_params(self._job))
        while part := list(islice(params, _PARAMS_A_CALL)):
            self._client.log_batch(run.info.run_id, params=part)
        return str(run.info.run_id)

    def _name(self, attempt: int) -> str:
        return f"{self._job.name} {self._job.id}" + (f" attempt {attempt}" if self._job.attempt > 1 else "")

    def _of(self, attempt: int) -> Attempt | None:
        return next((found for found in self._job.attempts if found.n == attempt), None)

    def _send(self, attempt: int) -> None:
        if waiting := self._waiting[attempt]:
            self._client.log_batch(self._runs[attempt], metrics=waiting)
            self._waiting[attempt] = []

    def _end(self, attempt: int) -> None:
        of = self._of(attempt)
        if of is not None and of.ended_at is not None:
            ended = int(of.ended_at.timestamp() * 1000)
            self._client.set_terminated(self._runs[attempt], _STATUS.get(of.outcome or "", "KILLED"), ended)

    def _key(self, point: Point) -> str:
        # A run of MLflow has one series per name, so series of the other learners get their own names.
        return _key(point.name if point.learner == 1 else f"learner-{point.learner}/{point.name}")


def _key(text: str) -> str:
    """The text with only the characters that MLflow accepts in names."""
    return re.sub(r"[^\w\-. /]", "_", text, flags=re.ASCII).strip("/. ") or "_"


def _storable(value: float) -> float:
    return math.copysign(_LARGEST, value) if math.isinf(value) else value


def _params(job: Job) -> Iterator[Any]:
    """The values of the manifest, flat: ``framework.name``, ``env.BATCH_SIZE`` and so on."""
    from mlflow.entities import Param

    for key, value in _flat("", job.manifest):
        yield Param(_key(key)[:250], str(value)[:_LONGEST_PARAM])


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for number, item in enumerate(value):
            yield from _flat(f"{prefix}.{number}", item)
    elif value is not None:
        yield prefix, value
