"""All values of a metric of a run."""

from __future__ import annotations

from typing import Any

from weft_api.http.paging import decode, encode
from weft_api.metrics.export import parts
from weft_api.metrics.records import clean_name
from weft_api.metrics.series import SeriesFilter, load
from weft_api.mlflow.calls import Call
from weft_api.mlflow.filters import cut
from weft_api.mlflow.runs import Run, find_run
from weft_api.mlflow.values import refused, shown_number
from weft_core.store.models import MlflowPoint

_AT_ONCE = 25_000
"""As many as MLflow's client asks for."""


def get_history(call: Call) -> dict[str, Any]:
    key = call.given.text("metric_key", 1000)
    run = find_run(call, call.given.run_id())
    return _of_job(call, run, key) if run.job is not None else _of_no_job(call, run, key)


def _answer(key: str, points: list[tuple[int, int, float]], token: str | None) -> dict[str, Any]:
    metrics = [
        {"key": key, "value": shown_number(value), "timestamp": time, "step": step} for step, time, value in points
    ]
    return {"metrics": metrics} | ({"next_page_token": token} if token else {})


def _of_job(call: Call, run: Run, key: str) -> dict[str, Any]:
    """The values of the first learner that reports the metric, over all attempts, as lists of jobs show them."""
    assert run.job is not None
    group = None if run.is_job else run.kept.group
    name = clean_name(key)
    wanted = SeriesFilter(names=(name if group is None else f"{group}/{name}",))
    if not run.is_job:
        wanted = SeriesFilter("user", (run.kept.rank or 0) + 1, run.kept.attempt, wanted.names)
    found = [
        series
        for series in load(call.scope, run.job.id, wanted)
        if group is None or (series.key.group, series.key.name) == (group, name)
    ]
    first = min((series.key.rank for series in found), default=0)
    points: list[tuple[int, int, float]] = []
    for _, some in parts(call.scope, [series for series in found if series.key.rank == first]):
        points += zip(some.steps.tolist(), some.times.tolist(), some.values.tolist(), strict=True)
    return _answer(key, *cut(points, call.given, _AT_ONCE))


def _of_no_job(call: Call, run: Run, key: str) -> dict[str, Any]:
    most = call.given.integer("max_results", _AT_ONCE, least=1, most=_AT_ONCE)
    token = call.given.text_or_none("page_token", 200)
    behind = decode(token, 1)[0] if token else "0"
    if not behind.isdigit():
        raise refused("Invalid page token, could not base64-decode")
    query = call.scope.select(
        MlflowPoint, MlflowPoint.run_id == run.id, MlflowPoint.key == key, MlflowPoint.id > int(behind[:18])
    )
    columns = query.with_only_columns(MlflowPoint.id, MlflowPoint.step, MlflowPoint.time, MlflowPoint.value)
    rows = call.session.execute(columns.order_by(MlflowPoint.id).limit(most + 1)).all()
    points = [(step, time, value) for _, step, time, value in rows[:most]]
    return _answer(key, points, encode(str(rows[most - 1][0])) if len(rows) > most else None)
