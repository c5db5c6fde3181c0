"""HTTP for code bundles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from weft_api.access.auth import Editor, Viewer
from weft_api.code.schemas import CodeView, Sha256
from weft_api.code.service import find_code, record_code, store_code
from weft_api.context import Ctx
from weft_api.http.audited import audited
from weft_api.http.bodies import allow
from weft_api.http.problems import (
    INVALID_BUNDLE,
    NOT_FOUND,
    STORE_UNAVAILABLE,
    TOO_LARGE,
    Problem,
    not_found,
    responses,
)
from weft_api.http.spool import Spooled, spool_body

router = APIRouter(prefix="/api/v1", tags=["code"])


@router.head("/code/{sha256}", summary="Check whether the server has a code bundle", responses=responses(NOT_FOUND))
def has_code(sha256: Sha256, context: Ctx, who: Viewer) -> Response:
    with context.database.transaction() as session:
        if find_code(who.scope(session), sha256) is None:
            raise not_found("code bundle", sha256)
    return Response()


async def _upload(sha256: Sha256, request: Request, context: Ctx, _: Editor) -> AsyncIterator[Spooled]:
    allow(request, context.settings.limits.bundle_bytes, "a code bundle")
    upload = await spool_body(request)  # after the sign-in, and only for a name that can be a sha256
    try:
        yield upload
    finally:
        upload.discard()


@router.put(
    "/code/{sha256}",
    status_code=201,
    summary="Upload a code bundle (the body is the zip)",
    responses=responses(INVALID_BUNDLE, TOO_LARGE, STORE_UNAVAILABLE),
    openapi_extra={
        **audited("code.upload", "code:{sha256}"),
        "requestBody": {
            "required": True,
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        },
    },
)
def put_code(sha256: Sha256, upload: Annotated[Spooled, Depends(_upload)], context: Ctx, who: Editor) -> CodeView:
    """The server compares the SHA-256 of the upload with the path. Uploading the same bundle again changes nothing."""
    if upload.sha256 != sha256:
        raise Problem(
            INVALID_BUNDLE,
            f"the upload has {upload.size} bytes with the sha256 {upload.sha256}, not {sha256}: it changed on its "
            "way, or while it was read",
        )
    info = store_code(context, who.project_id, upload)
    with context.database.transaction() as session:
        record_code(who.scope(session), sha256, info)
    return CodeView(sha256=sha256, size=info.size, files=info.files)
