"""HTTP for the registry of models."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response

from weft_api.access.auth import Editor, Viewer
from weft_api.context import Ctx
from weft_api.http.audited import audited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.paging import Cursor, Limit
from weft_api.http.problems import (
    CONFLICT,
    IDEMPOTENCY_CONFLICT,
    NOT_FOUND,
    RESULTS_GONE,
    STORE_REFUSED,
    STORE_UNAVAILABLE,
    responses,
)
from weft_api.models import service
from weft_api.models.files import list_version, zip_version
from weft_api.models.schemas import (
    EditVersionBody,
    ModelDetail,
    ModelPage,
    ModelView,
    PromoteBody,
    RegisterBody,
    VersionDetail,
    VersionPage,
    VersionView,
)
from weft_api.storage.file_lists import FileList
from weft_api.streaming.downloads import Download

router = APIRouter(prefix="/api/v1/models", tags=["models"])

Version = Annotated[str, Path(max_length=63, description="A number, a stage, or `latest`.", examples=["3"])]
Name = Annotated[str, Path(max_length=100, examples=["mnist"])]
NewName = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        description="At most 63 letters, digits, '.', '_' and '-'.",
        examples=["mnist"],
    ),
]
Stage = Annotated[
    str,
    Path(max_length=63, description="A lower-case letter, then letters, digits, '_' and '-'.", examples=["production"]),
]
_AWAY = (NOT_FOUND, RESULTS_GONE, STORE_REFUSED, STORE_UNAVAILABLE)


@router.get("", summary="List models by name")
def get_models(
    context: Ctx,
    who: Viewer,
    q: Annotated[
        str, Query(max_length=100, description="Only models with this text in their name.", examples=["mni"])
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ModelPage:
    with context.database.transaction() as session:
        return service.list_models(who.scope(session), q, limit, cursor)


@router.get("/{name}", summary="Show a model with its stages and their history", responses=responses(NOT_FOUND))
def get_model(name: Name, context: Ctx, who: Viewer) -> ModelDetail:
    with context.database.transaction() as session:
        return service.show_model(who.scope(session), name)


@router.delete(
    "/{name}",
    status_code=204,
    summary="Delete a model with all of its versions",
    responses=responses(NOT_FOUND, CONFLICT, STORE_UNAVAILABLE),
    openapi_extra=audited("models.delete", "model:{name}"),
)
def delete_model(name: Name, context: Ctx, who: Editor) -> None:
    """The server refuses this while a stage points at a version, or while a job that has not ended starts from a
    version. Objects in users' own data stores stay there."""
    service.delete(context, who, name)


@router.get("/{name}/versions", summary="List a model's versions, newest first", responses=responses(NOT_FOUND))
def get_versions(name: Name, context: Ctx, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> VersionPage:
    with context.database.transaction() as session:
        return service.list_versions(who.scope(session), name, limit, cursor)


@router.post(
    "/{name}/versions",
    status_code=201,
    summary="Register a completed job's results as the next version",
    responses={
        200: {
            "model": VersionView,
            "description": "The results are a version of this model already; the answer shows it.",
        },
        201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "The version's path."}}},
        **responses(*_AWAY, CONFLICT, IDEMPOTENCY_CONFLICT),
    },
    openapi_extra=audited("models.register", "model:{name}"),
)
def register(
    name: NewName, body: RegisterBody, context: Ctx, who: Editor, response: Response, key: KeyHeader = None
) -> VersionView:
    """If there is no model with this name, it is created. If a manifest has `training_results.model`, the server
    registers the results without this call."""
    request = once(context.settings, key, f"POST /models/{name}/versions", body.job)
    view, new = service.register_job(context, who, name, body.job, request)
    response.headers["Location"] = f"/api/v1/models/{name}/versions/{view.version}"
    if not new:
        response.status_code = 200
    return view


@router.get("/{name}/versions/{version}", summary="Show a version with its lineage", responses=responses(NOT_FOUND))
def get_version(name: Name, version: Version, context: Ctx, who: Viewer) -> VersionDetail:
    with context.database.transaction() as session:
        return service.show_version(who.scope(session), name, version)


@router.patch(
    "/{name}/versions/{version}",
    summary="Change a version's notes",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("models.edit_version", "model:{name}@{version}"),
)
def edit_version(name: Name, version: Version, body: EditVersionBody, context: Ctx, who: Editor) -> VersionView:
    with context.database.transaction() as session:
        return service.edit_version(who.scope(session), name, version, body.notes)


@router.delete(
    "/{name}/versions/{version}",
    status_code=204,
    summary="Delete a version by its number",
    responses=responses(NOT_FOUND, CONFLICT, STORE_UNAVAILABLE),
    openapi_extra=audited("models.delete_version", "model:{name}@{version}"),
)
def delete_version(name: Name, version: Version, context: Ctx, who: Editor) -> None:
    """The server refuses this while a stage points at the version, or while a job that has not ended starts from it.
    The number is not used again."""
    service.delete(context, who, name, version)


@router.get("/{name}/versions/{version}/files", summary="List a version's files", responses=responses(*_AWAY))
def get_files(name: Name, version: Version, context: Ctx, who: Viewer) -> FileList:
    """The list shows what the store has now. The answer is 410 if that is not what was registered."""
    with context.database.transaction() as session:
        files = service.find_files(context, who.scope(session), name, version)
    return list_version(context, files)


@router.get(
    "/{name}/versions/{version}/download",
    summary="Download a version as a zip",
    response_class=Download,
    responses={
        200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}},
        **responses(*_AWAY),
    },
)
def download(name: Name, version: Version, context: Ctx, who: Viewer) -> Download:
    """The server makes the zip while it sends it, so a version may have any size. If the connection breaks, the
    received file is not a valid zip."""
    with context.database.transaction() as session:
        files = service.find_files(context, who.scope(session), name, version)
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(f'{name}-{version}.zip', safe='')}"}
    return Download(context, who, zip_version(context, files), media_type="application/zip", headers=headers)


@router.put(
    "/{name}/stages/{stage}",
    summary="Promote a version to a stage",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("models.promote", "model:{name}@{stage}"),
)
def promote(name: Name, stage: Stage, body: PromoteBody, context: Ctx, who: Editor) -> ModelView:
    """The stage moves from its present version to this version. The model's history records the move."""
    with context.database.transaction() as session:
        return service.promote(who.scope(session), who, name, stage, body.version)


@router.delete(
    "/{name}/stages/{stage}",
    summary="Remove a stage",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("models.demote", "model:{name}@{stage}"),
)
def demote(name: Name, stage: Stage, context: Ctx, who: Editor) -> ModelView:
    with context.database.transaction() as session:
        return service.promote(who.scope(session), who, name, stage, None)
