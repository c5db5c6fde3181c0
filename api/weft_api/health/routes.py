"""HTTP for health."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from weft_api.context import Ctx
from weft_api.health.service import Health, Readiness, readiness
from weft_api.telemetry import METRICS
from weft_core import __version__

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Check that the process is alive")
async def healthz() -> Health:
    return Health(status="ok", version=__version__)


@router.get("/readyz", summary="Check that the server can serve requests", responses={503: {"model": Readiness}})
def readyz(context: Ctx, response: Response) -> Readiness:
    found = readiness(context)
    if found.status == "unavailable":
        response.status_code = 503
    return found


@router.get(
    "/metrics",
    summary="Get metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
def metrics(context: Ctx) -> Response:
    return Response(generate_latest(METRICS.of(context).registry), media_type=CONTENT_TYPE_LATEST)
