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
    summary="List the checkpoints that are kept of a job",
    responses=responses(NOT_FOUND, RESULTS_GONE, STORE_REFUSED, STORE_UNAVAILABLE),
)
def get_checkpoints(job_id: str, context: Ctx, who: Viewer) -> CheckpointList:
    """Complete ones; the newest is what the next attempt and a resume begin with. `rerun` with `from_checkpoint` begins
    with any."""
    return list_checkpoints(context, who, job_id)
