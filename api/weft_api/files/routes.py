"""HTTP for files."""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from weft_api.auth import Viewer
from weft_api.context import Ctx
from weft_api.files.schemas import FileList
from weft_api.files.service import list_files, open_results, read_definition, read_file, zip_results
from weft_api.problems import NO_RESULTS_YET, NOT_FOUND, RESULTS_GONE, STORE_REFUSED, STORE_UNAVAILABLE, responses

router = APIRouter(prefix="/api/v1", tags=["files"])

_AWAY = (NOT_FOUND, RESULTS_GONE, STORE_REFUSED, STORE_UNAVAILABLE)


def _binary(media: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media: {"schema": {"type": "string", "format": "binary"}}}}}


def _disposition(name: str) -> str:
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


@router.get("/jobs/{job_id}/files", summary="List the files that a job left", responses=responses(*_AWAY))
def get_files(job_id: str, context: Ctx, who: Viewer) -> FileList:
    """In the store that the manifest named, or else in the installation's own."""
    return list_files(open_results(context, who, job_id))


@router.get(
    "/jobs/{job_id}/files/{path:path}",
    summary="Download one file",
    response_class=StreamingResponse,
    responses={**_binary("application/octet-stream"), **responses(*_AWAY)},
)
def get_file(job_id: str, path: str, context: Ctx, who: Viewer) -> StreamingResponse:
    info, pieces = read_file(open_results(context, who, job_id), path)
    headers = {"Content-Length": str(info.size), "Content-Disposition": _disposition(posixpath.basename(path))}
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)


@router.get(
    "/jobs/{job_id}/definition",
    summary="Download the code that a job was submitted with",
    response_class=StreamingResponse,
    responses={**_binary("application/zip"), **responses(NOT_FOUND, STORE_UNAVAILABLE)},
)
def get_definition(job_id: str, context: Ctx, who: Viewer) -> StreamingResponse:
    info, pieces = read_definition(context, who, job_id)
    headers = {"Content-Length": str(info.size), "Content-Disposition": _disposition(f"{job_id}-definition.zip")}
    return StreamingResponse(pieces, media_type="application/zip", headers=headers)


@router.get(
    "/jobs/{job_id}/trained-model",
    summary="Download all results as a zip",
    response_class=StreamingResponse,
    responses={**_binary("application/zip"), **responses(*_AWAY, NO_RESULTS_YET)},
)
def get_trained_model(job_id: str, context: Ctx, who: Viewer) -> StreamingResponse:
    """Of any size: it is made while it is sent. A connection that breaks off leaves a file that is no valid zip."""
    pieces = zip_results(open_results(context, who, job_id))
    headers = {"Content-Disposition": _disposition(f"{job_id}-trained-model.zip")}
    return StreamingResponse(pieces, media_type="application/zip", headers=headers)
