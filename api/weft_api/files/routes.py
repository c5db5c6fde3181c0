"""HTTP for files."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from weft_api.access.auth import Viewer
from weft_api.context import Ctx
from weft_api.files.code import list_code, read_code
from weft_api.files.schemas import CodeFiles
from weft_api.files.service import list_files, open_results, read_beginning, read_definition, read_file, zip_results
from weft_api.http.preview import MOST_SHOWN, SAFE, disposition, image_type, text_answer
from weft_api.http.problems import (
    NO_RESULTS_YET,
    NOT_FOUND,
    RESULTS_GONE,
    STORE_REFUSED,
    STORE_UNAVAILABLE,
    UNSUPPORTED_MEDIA,
    responses,
)
from weft_api.storage.file_lists import FileList
from weft_api.streaming.downloads import Download

router = APIRouter(prefix="/api/v1", tags=["files"])

Preview = Annotated[bool, Query(description="Show the file instead of downloading it.")]
_AWAY = (NOT_FOUND, RESULTS_GONE, STORE_REFUSED, STORE_UNAVAILABLE)


def _binary(media: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media: {"schema": {"type": "string", "format": "binary"}}}}}


@router.get("/jobs/{job_id}/files", summary="List the files of a job's results", responses=responses(*_AWAY))
def get_files(job_id: str, context: Ctx, who: Viewer) -> FileList:
    """The files are in the store that the manifest names, or else in the installation's own store."""
    return list_files(open_results(context, who, job_id))


@router.get(
    "/jobs/{job_id}/files/{path:path}",
    summary="Download or show a file of a job's results",
    response_class=Download,
    responses={**_binary("application/octet-stream"), **responses(*_AWAY, UNSUPPORTED_MEDIA)},
)
def get_file(job_id: str, path: str, context: Ctx, who: Viewer, preview: Preview = False) -> Response:
    """With `preview`, an image is sent with its media type. Any other file is sent as text, up to its first MiB. The
    header `X-Weft-Size` has the size of the whole file, and `X-Weft-Truncated` tells whether the answer is only a part
    of it. A file that is neither an image nor text is refused with 415."""
    results = open_results(context, who, job_id)
    if preview and not image_type(path):
        size, beginning = read_beginning(results, path, MOST_SHOWN)
        return text_answer(path, beginning, size)
    info, pieces = read_file(results, path)
    headers = SAFE | {"Content-Length": str(info.size)}
    headers["Content-Disposition"] = disposition(path, "inline" if preview else "attachment")
    media = (image_type(path) if preview else None) or "application/octet-stream"
    return Download(context, who, pieces, media_type=media, headers=headers)


@router.get(
    "/jobs/{job_id}/code",
    summary="List the files of a job's code",
    responses=responses(NOT_FOUND, STORE_UNAVAILABLE),
)
def get_code_files(job_id: str, context: Ctx, who: Viewer) -> CodeFiles:
    return list_code(context, who, job_id)


@router.get(
    "/jobs/{job_id}/code/{path:path}",
    summary="Show a file of a job's code",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **responses(NOT_FOUND, STORE_UNAVAILABLE, UNSUPPORTED_MEDIA),
    },
)
def get_code_file(job_id: str, path: str, context: Ctx, who: Viewer) -> Response:
    """The answer is text, up to the first MiB. It has the same headers as the preview of a result."""
    size, beginning = read_code(context, who, job_id, path, MOST_SHOWN)
    return text_answer(path, beginning, size)


@router.get(
    "/jobs/{job_id}/definition",
    summary="Download a job's code as a zip",
    response_class=Download,
    responses={**_binary("application/zip"), **responses(NOT_FOUND, STORE_UNAVAILABLE)},
)
def get_definition(job_id: str, context: Ctx, who: Viewer) -> Download:
    info, pieces = read_definition(context, who, job_id)
    headers = {"Content-Length": str(info.size), "Content-Disposition": disposition(f"{job_id}-definition.zip")}
    return Download(context, who, pieces, media_type="application/zip", headers=headers)


@router.get(
    "/jobs/{job_id}/trained-model",
    summary="Download all results of a job as a zip",
    response_class=Download,
    responses={**_binary("application/zip"), **responses(*_AWAY, NO_RESULTS_YET)},
)
def get_trained_model(job_id: str, context: Ctx, who: Viewer) -> Download:
    """The server makes the zip while it sends it, so results may have any size. If the connection breaks, the received
    file is not a valid zip."""
    pieces = zip_results(open_results(context, who, job_id))
    headers = {"Content-Disposition": disposition(f"{job_id}-trained-model.zip")}
    return Download(context, who, pieces, media_type="application/zip", headers=headers)
