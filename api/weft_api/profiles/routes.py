"""HTTP for profiles. A profile is asked for through a tunnel (``weft_api.tunnels``)."""

from __future__ import annotations

from fastapi import APIRouter

from weft_api.access.auth import Viewer
from weft_api.context import Ctx
from weft_api.http.preview import SAFE, disposition
from weft_api.http.problems import NOT_FOUND, STORE_UNAVAILABLE, responses
from weft_api.profiles.schemas import ProfileList
from weft_api.profiles.service import list_profiles, read_profile
from weft_api.streaming.downloads import Download

router = APIRouter(prefix="/api/v1", tags=["files"])


@router.get(
    "/jobs/{job_id}/profiles",
    summary="List the profiles of a job",
    responses=responses(NOT_FOUND, STORE_UNAVAILABLE),
)
def get_profiles(job_id: str, context: Ctx, who: Viewer) -> ProfileList:
    """A job keeps its newest 20 profiles. `weft profile` records a profile, through a tunnel of kind `profile`."""
    return list_profiles(context, who, job_id)


@router.get(
    "/jobs/{job_id}/profiles/{path:path}",
    summary="Download a file of a profile",
    response_class=Download,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        **responses(NOT_FOUND, STORE_UNAVAILABLE),
    },
)
def get_profile_file(job_id: str, path: str, context: Ctx, who: Viewer) -> Download:
    info, pieces = read_profile(context, who, job_id, path)
    headers = SAFE | {"Content-Length": str(info.size), "Content-Disposition": disposition(path)}
    return Download(context, who, pieces, media_type="application/octet-stream", headers=headers)
