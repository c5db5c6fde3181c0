"""HTTP for checkpoints."""

from __future__ import annotations

from fastapi import APIRouter

from weft_api.access.auth import Viewer
from weft_api.checkpoints.schemas import CheckpointList
from weft_api.checkpoints.service import list_checkpoints
from weft_api.context import Ctx
from weft_api.http.problems import NOT_FOUND, RESULTS_GONE, STORE_REFUSED, STORE_UNAVAILABLE, responses

router = APIRouter(prefix="/api/v1", tags=["files"])


@router.get(
    "/jobs/{job_id}/checkpoints",
    summary="List the stored checkpoints of a job",
    responses=responses(NOT_FOUND, RESULTS_GONE, STORE_REFUSED, STORE_UNAVAILABLE),
)
def get_checkpoints(job_id: str, context: Ctx, who: Viewer) -> CheckpointList:
    """The list has complete checkpoints only. The next attempt and a resumed job start from the newest checkpoint.
    `rerun` with `from_checkpoint` can start from any of them."""
    return list_checkpoints(context, who, job_id)
