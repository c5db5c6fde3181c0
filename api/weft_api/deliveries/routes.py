"""HTTP for deliveries."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from weft_api.access.auth import Editor, Viewer
from weft_api.context import Ctx
from weft_api.deliveries.schemas import DeliveryList, DeliveryView
from weft_api.deliveries.service import list_deliveries, replay_delivery
from weft_api.http.audited import audited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.problems import IDEMPOTENCY_CONFLICT, NOT_FOUND, responses

router = APIRouter(prefix="/api/v1", tags=["events"])


@router.get("/jobs/{job_id}/deliveries", summary="List the notifications of a job", responses=responses(NOT_FOUND))
def get_deliveries(
    job_id: str, context: Ctx, who: Viewer, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> DeliveryList:
    """For each event, there is one delivery to each target of the manifest's `notify` that the event is for."""
    with context.database.transaction() as session:
        return DeliveryList(deliveries=list_deliveries(who.scope(session), job_id, limit))


@router.post(
    "/jobs/{job_id}/deliveries/{delivery_id}/replay",
    status_code=202,
    summary="Send a notification of a job again",
    responses=responses(NOT_FOUND, IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("jobs.replay_delivery", "job:{job_id}"),
)
def post_replay(job_id: str, delivery_id: str, context: Ctx, who: Editor, key: KeyHeader = None) -> DeliveryView:
    """The receiver gets the same event with the same id. A delivery that has failed or that waits for its next try is
    tried at once."""
    request = once(context.settings, key, f"POST /jobs/{job_id}/deliveries/{delivery_id}/replay", None)
    with context.database.transaction() as session:
        return replay_delivery(who.scope(session), job_id, delivery_id, request)
