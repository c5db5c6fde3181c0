"""Jobs, log lines and metrics in FfDL's shapes. Its client requires numbers where there are numbers here, and
some objects never null."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from weft_api.logs.schemas import LogLine
from weft_api.metrics.listing import best_and_last
from weft_api.metrics.schemas import BestAndLast, RecordView
from weft_core.manifest import DataStore, Manifest, Place
from weft_core.store.models import Attempt, Job, User
from weft_core.store.scope import Scope

Json = dict[str, Any]

_NORMAL, _CRASHED = "000", "C201"
_UNITS = {"GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6}  # all that FfDL's client knows
_INT32 = 2**31 - 1


def go_time(at: datetime | None) -> str:
    """The only form in which FfDL's client shows a time: ``2026-01-31 08:15:02.5 +0000 UTC``."""
    if at is None:
        return ""
    at = at.astimezone(UTC)
    fraction = f".{at.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{at:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def models_of(scope: Scope, jobs: Sequence[Job]) -> list[Json]:
    """FfDL's Model for each of the jobs."""
    ids = [job.id for job in jobs]
    metrics = best_and_last(scope, ids)
    newest = scope.select(Attempt, Attempt.job_id.in_(ids)).with_only_columns(
        Attempt.job_id, Attempt.n, Attempt.exit_code
    )
    codes = {(job_id, n): code for job_id, n, code in scope.session.execute(newest)}
    return [_model(job, metrics[job.id], codes.get((job.id, job.attempt))) for job in jobs]


def _model(job: Job, metrics: Mapping[str, BestAndLast], exit_code: int | None) -> Json:
    manifest = Manifest.model_validate(job.manifest)
    memory, unit = _memory(manifest.resources.memory)
    inputs, outputs, stores = _data_stores(manifest)
    return {
        "model_id": job.id,
        "location": location(job.id),
        "name": job.name,
        "description": manifest.description,
        "framework": {"name": manifest.framework.name, "version": manifest.framework.version},
        "training": {
            "command": manifest.framework.command,
            "cpus": float(manifest.resources.cpus),
            "gpus": float(manifest.resources.gpus),
            "memory": memory,
            "memory_unit": unit,
            "learners": job.learners,
            "input_data": inputs,
            "output_data": outputs,
            "training_status": _status(job, exit_code),
        },
        "data_stores": stores,
        "metrics": _metrics(metrics),
    }


def location(job_id: str) -> str:
    """Relative: the client takes the id off its end."""
    return f"/v1/models/{job_id}"


def _status(job: Job, exit_code: int | None) -> Json:
    crashed = job.error_code == _CRASHED and exit_code is not None
    why = f"{job.reason} ({job.condition})" if job.condition else job.reason
    return {
        "status": job.state,
        "status_description": f"{job.state}: {why}" if why else job.state,
        "status_message": str(exit_code) if crashed else why,
        "error_code": job.error_code or _NORMAL,
        "submitted": go_time(job.created_at),
        "completed": go_time(job.ended_at),
    }


def _memory(size: int) -> tuple[float, str]:
    for unit, factor in _UNITS.items():
        if size % factor == 0:
            return size / factor, unit
    return round(size / _UNITS["MiB"], 3), "MiB"


def _data_stores(manifest: Manifest) -> tuple[list[str], list[str], list[Json]]:
    """Ids and places of inputs and outputs, never their credentials."""
    inputs, outputs, shown = [], [], []
    for store in manifest.data_stores:
        if store.training_data:
            inputs.append(f"{store.id}-input")
            shown.append(_data_store(inputs[-1], store, store.training_data))
        results = store.training_results
        if results and results.container:
            outputs.append(f"{store.id}-output")
            shown.append(_data_store(outputs[-1], store, Place(container=results.container, prefix=results.prefix)))
    return inputs, outputs, shown


def _data_store(shown_id: str, store: DataStore, place: Place) -> Json:
    connection = {"bucket": place.container, "prefix": place.prefix, "datastore": store.datastore}
    if store.connection:
        connection |= {"auth_url": store.connection.auth_url, "region": store.connection.region}
    if store.mount:
        connection |= {"type": "host_mount", "name": store.mount.name, "path": store.mount.path}
    return {
        "data_store_id": shown_id,
        "type": store.type,
        "connection": {key: value for key, value in connection.items() if value},
    }


def _metrics(metrics: Mapping[str, BestAndLast]) -> list[Json]:
    """The newest values, one entry a group."""
    groups: dict[str, Json] = defaultdict(lambda: {"timestamp": "", "iteration": 0, "Values": {}})
    for shown, metric in metrics.items():
        group, _, name = shown.rpartition("/")
        entry = groups[group]
        entry["Values"][name] = metric.last
        entry["iteration"] = max(entry["iteration"], _int32(metric.step))
        # In this form the later one is the larger one, too.
        entry["timestamp"] = max(entry["timestamp"], "" if metric.time is None else _stamp(metric.time))
    return [{"type": group, **entry} for group, entry in groups.items()]


def user_of(scope: Scope, job: Job) -> str:
    return scope.session.scalar(select(User.name).where(User.id == job.user_id)) or ""


def log_line(line: LogLine, job_id: str, user: str) -> Json:
    return {"meta": _meta(job_id, user, line.t, line.n + 1), "line": line.text}


def emetrics(record: RecordView, job_id: str, user: str) -> Json:
    etimes = {name: _typed(value, record.types.get(name)) for name, value in record.etimes.items()}
    if _is_tensorboards(record):
        etimes.setdefault("timestamp", _typed(_iso(record.etimes["wall_time"]), "STRING"))
    return {
        "meta": _meta(job_id, user, record.t, record.rindex),
        "grouplabel": record.group,
        "etimes": etimes,
        "values": {name: _typed(value, record.types.get(name)) for name, value in record.values.items()},
    }


def _is_tensorboards(record: RecordView) -> bool:
    """Its wall time is its time, as that of TensorBoard's events is; others may mean anything by that name."""
    at = record.etimes.get("wall_time")
    return isinstance(at, float) and 0 < at < 1e11 and int(at * 1000) == record.t


def _iso(seconds: float) -> str:
    """FfDL's form of an event's time."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _meta(job_id: str, user: str, time: int, rindex: int) -> Json:
    return {"training_id": job_id, "user_id": user, "time": time, "rindex": rindex}


def _typed(value: int | float | str, kind: str | None) -> Json:
    """FfDL's Any: a type, and the value as text. A text that came without a type gets the type that it looks like."""
    if isinstance(value, int):
        return {"type": "INT", "value": str(value)}
    if isinstance(value, float) or (kind is None and value in ("nan", "inf", "-inf")):
        return {"type": "FLOAT", "value": str(value)}
    return {"type": kind or ("JSONSTRING" if _is_json(value) else "STRING"), "value": value}


def _is_json(text: str) -> bool:
    if text[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def metric_data(record: RecordView) -> Json:
    """FfDL's MetricData. The step of a record that has none is 0."""
    return _data(record.group, record.t, record.etimes.get("iteration"), record.values)


def status_data(state: str, reason: str) -> Json:
    """The text that FfDL's client shows as ``Status: …`` among the metrics."""
    now = round(datetime.now(UTC).timestamp() * 1000)
    return _data("Status", now, 0, {"Message": f"{state}: {reason}" if reason else state})


def _stamp(time: int) -> str:
    """FfDL's form of a metric's time, which is in ms since the epoch."""
    at = datetime.fromtimestamp(min(max(time, 0), 253_402_300_799_999) / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _data(kind: str, time: int, step: Any, values: Mapping[str, Any]) -> Json:
    return {"type": kind, "timestamp": _stamp(time), "iteration": _int32(step), "Values": dict(values)}


def _int32(step: Any) -> int:
    try:
        return max(-_INT32 - 1, min(_INT32, int(step or 0)))
    except (ValueError, TypeError, OverflowError):
        return 0
