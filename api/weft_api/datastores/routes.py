"""HTTP for data stores."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from weft_api.access.auth import Editor, Viewer
from weft_api.context import Ctx
from weft_api.datastores import service, transfers
from weft_api.datastores.schemas import (
    CompleteBody,
    Container,
    DatastoreBody,
    DatastoreList,
    DatastoreName,
    DatastoreView,
    Download,
    DownloadBody,
    NamedContainer,
    NewDatastore,
    ObjectPage,
    QueryContainer,
    QueryKey,
    Upload,
    UploadBody,
)
from weft_api.http.audited import audited, unaudited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.preview import MOST_SHOWN, SAFE, disposition, image_type, text_answer
from weft_api.http.problems import (
    EXISTS,
    IDEMPOTENCY_CONFLICT,
    NOT_FOUND,
    STORE_REFUSED,
    STORE_UNAVAILABLE,
    UNSUPPORTED_MEDIA,
    responses,
)
from weft_api.streaming import downloads

router = APIRouter(prefix="/api/v1", tags=["datastores"])

Check = Annotated[bool, Query(description="Check that the store accepts these credentials.")]
_STORE = (STORE_REFUSED, STORE_UNAVAILABLE)


@router.get("/datastores", summary="List data stores")
def get_datastores(context: Ctx, who: Viewer) -> DatastoreList:
    with context.database.transaction() as session:
        return DatastoreList(datastores=service.list_datastores(context, who.scope(session)))


@router.post(
    "/datastores",
    status_code=201,
    summary="Save a data store",
    responses=responses(EXISTS, IDEMPOTENCY_CONFLICT, *_STORE),
    openapi_extra=audited("datastores.create", "datastore"),
)
def post_datastore(
    body: NewDatastore, context: Ctx, who: Editor, check: Check = True, key: KeyHeader = None
) -> DatastoreView:
    """Manifests refer to the data store with `datastore: NAME`."""
    secret = body.session_token.get_secret_value() if body.session_token else None
    parts = [body.model_dump(), body.password.get_secret_value(), secret]
    return service.create_datastore(context, who, body, check, once(context.settings, key, "POST /datastores", parts))


@router.get("/datastores/{name}", summary="Show a data store", responses=responses(NOT_FOUND))
def get_datastore(name: DatastoreName, context: Ctx, who: Viewer) -> DatastoreView:
    with context.database.transaction() as session:
        return service.show_datastore(context, who.scope(session), name)


@router.put(
    "/datastores/{name}",
    summary="Replace a data store",
    responses=responses(NOT_FOUND, *_STORE),
    openapi_extra=audited("datastores.replace", "datastore:{name}"),
)
def put_datastore(
    name: DatastoreName, body: DatastoreBody, context: Ctx, who: Editor, check: Check = True
) -> DatastoreView:
    return service.replace_datastore(context, who, name, body, check)


@router.delete(
    "/datastores/{name}",
    status_code=204,
    summary="Remove a data store",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("datastores.delete", "datastore:{name}"),
)
def delete_datastore(name: DatastoreName, context: Ctx, who: Editor) -> None:
    """The content of the store stays as it is."""
    with context.database.transaction() as session:
        service.delete_datastore(who.scope(session), name)


@router.get(
    "/datastores/{name}/objects",
    summary="List the containers of a data store, or the objects in a container",
    responses=responses(NOT_FOUND, *_STORE),
)
def get_objects(
    name: DatastoreName,
    context: Ctx,
    who: Viewer,
    container: QueryContainer = None,
    prefix: Annotated[str, Query(max_length=900, description="Only objects whose keys start with this text.")] = "",
    folders: Annotated[
        bool, Query(description="List one level only: the objects below the next slash appear as `folders`.")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=1000, description="Objects per page.")] = 200,
    cursor: Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the previous page.")] = None,
) -> ObjectPage:
    """Without `container`, the answer lists the containers."""
    wanted = transfers.Listing(prefix, folders, limit, cursor)
    return transfers.list_objects(context, who, name, container, wanted)


@router.get(
    "/datastores/{name}/objects:preview",
    summary="Show an object",
    response_class=downloads.Download,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        **responses(NOT_FOUND, UNSUPPORTED_MEDIA, *_STORE),
    },
)
def preview_object(
    name: DatastoreName, container: NamedContainer, key: QueryKey, context: Ctx, who: Viewer
) -> Response:
    """As the preview of a job's file: an image is sent with its media type, and any other object as text, up to its
    first MiB. An object that is neither an image nor text is refused with 415."""
    info, beginning, pieces = transfers.read_object(context, who, name, container, key)
    media = image_type(key)
    if media is None:
        return text_answer(key, beginning(MOST_SHOWN), info.size)
    headers = SAFE | {"Content-Length": str(info.size), "Content-Disposition": disposition(key, "inline")}
    return downloads.Download(context, who, pieces(), media_type=media, headers=headers)


@router.put(
    "/datastores/{name}/containers/{container}",
    status_code=204,
    summary="Create a container",
    responses=responses(NOT_FOUND, *_STORE),
    openapi_extra=audited("datastores.create_container", "container:{name}/{container}"),
)
def put_container(name: DatastoreName, container: Container, context: Ctx, who: Editor) -> None:
    """A container that exists already stays as it is."""
    transfers.create_container(context, who, name, container)


@router.post(
    "/datastores/{name}/uploads",
    status_code=201,
    summary="Get the URLs to upload an object",
    responses=responses(NOT_FOUND, IDEMPOTENCY_CONFLICT, *_STORE),
    openapi_extra=audited("datastores.upload", "object"),
)
def post_upload(name: DatastoreName, body: UploadBody, context: Ctx, who: Editor, key: KeyHeader = None) -> Upload:
    """PUT each part to its URL. An object of up to 64 MiB has a single part, and exists as soon as that is uploaded.
    A PUT must begin within 15 minutes. The same request with the same `Idempotency-Key` gets new URLs for the same
    upload."""
    request = once(context.settings, key, f"POST /datastores/{name}/uploads", body.model_dump())
    return transfers.begin_upload(context, who, name, body, request)


@router.post(
    "/datastores/{name}/uploads:complete",
    status_code=204,
    summary="Complete an upload of several parts",
    responses=responses(NOT_FOUND, IDEMPOTENCY_CONFLICT, *_STORE),
    openapi_extra=audited("datastores.complete_upload", "object"),
)
def complete_upload(name: DatastoreName, body: CompleteBody, context: Ctx, who: Editor, key: KeyHeader = None) -> None:
    request = once(context.settings, key, f"POST /datastores/{name}/uploads:complete", body.model_dump())
    transfers.complete_upload(context, who, name, body, request)


@router.post(
    "/datastores/{name}/downloads",
    summary="Get the URL to download an object",
    responses=responses(NOT_FOUND, *_STORE),
    openapi_extra=unaudited("it only reads"),
)
def post_download(name: DatastoreName, body: DownloadBody, context: Ctx, who: Viewer) -> Download:
    """The GET must begin within 15 minutes, and may take longer."""
    return transfers.begin_download(context, who, name, body)
