"""HTTP for what agents send all the time: heartbeats, log lines and metrics."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from weft_api.access.attempts import AttemptToken, attempt_token, attempt_token_of
from weft_api.context import Context
from weft_api.http import bodies
from weft_api.http.audited import unaudited
from weft_api.http.direct import DirectRoute
from weft_api.http.problems import LOG_FULL, STALE_ATTEMPT, TOO_LARGE, TOO_MANY_LINES, responses
from weft_api.learner.combined import LOG_BYTES, METRIC_BYTES
from weft_api.learner.combined import accept as accept_report
from weft_api.learner.heartbeats import accept as accept_heartbeat
from weft_api.learner.pace import PACE
from weft_api.learner.schemas import HeartbeatAnswer, ReportAnswer, TunnelCall
from weft_api.logs.ingest import accept as accept_logs
from weft_api.metrics.ingest import accept as accept_metrics
from weft_api.streaming.tunnels import TUNNELS
from weft_core.service_log import note

router = APIRouter(
    prefix="/api/v1/learner",
    tags=["learner"],
    responses=responses(STALE_ATTEMPT),
    route_class=DirectRoute,
    dependencies=[Depends(attempt_token)],
)


def _documented(schema: str) -> dict[str, Any]:
    """The OpenAPI entry for a body that the route reads itself."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    what = unaudited("what an agent reports of its learner, many times a minute")
    return {"requestBody": {"required": True, "content": content}, **what}


_HOLD = [
    {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": kind, "minimum": 0},
    }
    for name, kind, description in (
        ("wait", "number", "Seconds for which the answer may be held back."),
        ("rank", "integer", "The learner's rank; without it, the answer is not held back."),
    )
]


def _number(request: Request, name: str) -> float | None:
    """A parameter of the query; None: it is missing, or no such number."""
    text = request.query_params.get(name, "")
    return float(text) if len(text) < 20 and text.isascii() and text.replace(".", "", 1).isdigit() else None


def _caller(request: Request) -> tuple[Context, AttemptToken]:
    """Raises Problem."""
    context: Context = request.app.state.context
    return context, attempt_token_of(context, request)


@router.post(
    "/heartbeat",
    summary="Send a heartbeat",
    response_model=HeartbeatAnswer,
    openapi_extra=_documented("HeartbeatCall") | {"parameters": _HOLD},
)
async def heartbeat(request: Request) -> Response:
    """The answer can order the learner to stop. With `wait`, it comes when somebody asks for a tunnel to the learner,
    or after that many seconds; the heartbeat counts from its arrival."""
    context, token = _caller(request)
    answer = await accept_heartbeat(context, token, await request.body())
    wait, rank = _number(request, "wait"), _number(request, "rank")
    if wait and rank is not None and not answer.stop:
        began = time.monotonic()
        calls = await TUNNELS.of(context).hold(token.sha256, int(rank), wait)
        request.state.waited = time.monotonic() - began
        answer = answer.model_copy(update={"tunnels": [TunnelCall(**call) for call in calls]})
    return Response(answer.model_dump_json(), media_type="application/json")


@router.post(
    "/logs",
    status_code=204,
    summary="Send log lines",
    responses=responses(LOG_FULL, TOO_LARGE, TOO_MANY_LINES),
    openapi_extra=_documented("LogsCall"),
)
async def logs(request: Request) -> Response:
    """A repeated batch changes nothing. `429` means that the job writes more than it may
    (`limits.log_lines_per_second`, `limits.log_bytes_per_second`); send the batch again later. `409` means that the
    job's log is full and accepts no more lines."""
    context, token = _caller(request)
    body = await bodies.read(request, LOG_BYTES, "a batch of log lines")
    accepted = await accept_logs(context, token, body)
    note(job=accepted.job_id, attempt=accepted.attempt)
    return Response(status_code=204)


@router.post(
    "/metrics",
    status_code=204,
    summary="Send metrics",
    responses=responses(TOO_LARGE),
    openapi_extra=_documented("MetricsCall"),
)
async def metrics(request: Request) -> Response:
    """A repeated call changes nothing. A call may have 20,000 values and 2 MiB."""
    context, token = _caller(request)
    body = await bodies.read(request, METRIC_BYTES, "a batch of metrics")
    accepted = await accept_metrics(context, token, body)
    note(job=accepted.job_id, attempt=accepted.attempt)
    return Response(status_code=204)


@router.post(
    "/report",
    summary="Send a heartbeat, log lines and metrics in one call",
    response_model=ReportAnswer,
    responses=responses(TOO_LARGE),
    openapi_extra=_documented("ReportCall"),
)
async def report(request: Request) -> Response:
    """Each part means what it means in a call of its own. The server stores all parts in one transaction. If it refuses
    a part, it takes in the others all the same, and `refused` in the answer names the part.

    If the server holds back the answer to an earlier heartbeat of this learner, a heartbeat in a report prolongs the
    wait."""
    context, token = _caller(request)
    body = await bodies.read(request, LOG_BYTES + METRIC_BYTES, "a report")
    pace = PACE.of(context)
    with pace.report():
        taken = await accept_report(context, token, body)
    taken.answer.pause = pace.pause(token.sha256, taken.learners)
    note(job=taken.job_id, attempt=taken.attempt)
    if taken.answer.heartbeat is not None:
        TUNNELS.of(context).prolong(token.sha256, taken.rank)
    return Response(taken.answer.model_dump_json(), media_type="application/json")
