"""HTTP for health."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from weft_api.access.auth import Bearer
from weft_api.context import Ctx
from weft_api.health.service import Health, Readiness, readiness, require_scraper
from weft_api.http.problems import FORBIDDEN, UNAUTHENTICATED, responses
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
    responses={200: {"content": {"text/plain": {}}}, **responses(UNAUTHENTICATED, FORBIDDEN)},
    openapi_extra={"security": [{"token": []}, {}]},
)
def metrics(context: Ctx, request: Request, bearer: Bearer) -> Response:
    """With the setting `telemetry.metrics_token`, the call needs that token (`Authorization: Bearer`). Without it, the
    server answers to its own machine only, and not through a proxy."""
    require_scraper(context, request, bearer.credentials if bearer else "")
    return Response(generate_latest(METRICS.of(context).registry), media_type=CONTENT_TYPE_LATEST)
