"""Bringing objects into a data store and out of it: by presigned URLs, so that no byte passes through the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.datastores.schemas import (
    CompleteBody,
    Download,
    DownloadBody,
    ObjectPage,
    StoredObject,
    Upload,
    UploadBody,
    UploadPart,
)
from weft_api.datastores.service import open_datastore
from weft_api.http.audited import about
from weft_api.http.idempotency import Once
from weft_api.http.problems import not_found
from weft_api.storage.clients import users_store
from weft_core.objects import ObjectInfo

_PART = 64 << 20
_MOST_PARTS = 10_000  # S3's own limit
_URL_SECONDS = 15 * 60
"""A URL opens the store without a sign-in, and a sign-out does not end it. A transfer that has begun goes on; for what
remains, the client asks again."""


@dataclass(frozen=True)
class Listing:
    """What a listing of a container is to contain."""

    prefix: str
    folders: bool
    limit: int
    cursor: str | None


def list_objects(context: Context, who: Principal, name: str, container: str | None, wanted: Listing) -> ObjectPage:
    """A page of a container's objects, or the containers."""
    store = open_datastore(context, who, name, container)
    with users_store():
        if container is None:
            return ObjectPage(containers=store.containers())
        found, folders, following = store.page(wanted.prefix, wanted.limit, wanted.cursor, folders=wanted.folders)
    return ObjectPage(
        objects=[StoredObject(key=info.key, size=info.size, modified=info.modified) for info in found],
        folders=folders if wanted.folders else None,
        next_cursor=following,
    )


def read_object(
    context: Context, who: Principal, name: str, container: str, key: str
) -> tuple[ObjectInfo, Callable[[int], bytes], Callable[[], Iterator[bytes]]]:
    """An object, a function that reads its first bytes, and one that reads it in pieces. Raises Problem not_found."""
    store = open_datastore(context, who, name, container)
    with users_store():
        info = store.head(key)
    if info is None:
        raise not_found("object", f"{container}/{key}")

    def beginning(most: int) -> bytes:
        with users_store():
            return store.get_range(key, 0, most) if info.size else b""

    def pieces() -> Iterator[bytes]:
        with users_store():
            return store.get_stream(key)

    return info, beginning, pieces


def create_container(context: Context, who: Principal, name: str, container: str) -> None:
    store = open_datastore(context, who, name, container)
    with users_store():
        store.create()


def begin_upload(context: Context, who: Principal, name: str, body: UploadBody, once: Once) -> Upload:
    """URLs to PUT an object to: one for a small object, one a part for a large one. A repeated request has new ones."""
    about("object", f"{name}/{body.container}/{body.key}")
    with context.database.transaction() as session:
        earlier = once.seen(who.scope(session))
    store = open_datastore(context, who, name, body.container)
    with users_store():
        if body.create_container:
            store.create()
        small = body.size <= _PART
        upload_id = earlier or ("-" if small else store.create_multipart(body.key))
    with context.database.transaction() as session:
        upload_id = once.claim(who.scope(session), upload_id)
    if small:
        url = store.presign_put(body.key, _URL_SECONDS)
        return Upload(parts=[UploadPart(number=1, url=url, size=body.size)], upload_id=None)
    part = max(_PART, -(-body.size // _MOST_PARTS))
    parts = [
        UploadPart(
            number=number,
            url=store.presign_part(body.key, upload_id, number, _URL_SECONDS),
            size=min(part, body.size - start),
        )
        for number, start in enumerate(range(0, body.size, part), 1)
    ]
    return Upload(parts=parts, upload_id=upload_id)


def complete_upload(context: Context, who: Principal, name: str, body: CompleteBody, once: Once) -> None:
    """Make the object out of its parts. Raises Problem store_refused, with the store's reason."""
    about("object", f"{name}/{body.container}/{body.key}")
    with context.database.transaction() as session:
        if once.seen(who.scope(session)) is not None:
            return
    store = open_datastore(context, who, name, body.container)
    with users_store():
        store.complete_multipart(body.key, body.upload_id, body.etags)
    with context.database.transaction() as session:
        once.claim(who.scope(session), json.dumps([body.container, body.key]))


def begin_download(context: Context, who: Principal, name: str, body: DownloadBody) -> Download:
    store = open_datastore(context, who, name, body.container)
    with users_store():
        info = store.head(body.key)
        if info is None:
            raise not_found("object", f"{body.container}/{body.key}")
        return Download(url=store.presign_get(body.key, _URL_SECONDS), size=info.size)
