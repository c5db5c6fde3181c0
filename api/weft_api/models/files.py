"""A version's objects, wherever they are: whether they still are what was registered, and as a zip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weft_api.context import Context
from weft_api.http.problems import RESULTS_GONE, Problem
from weft_api.storage.clients import open_store, users_store
from weft_api.storage.file_lists import FileList, FileView
from weft_api.storage.locations import StoreGone, version_location
from weft_api.streaming.zipstream import Entry, stream_zip
from weft_core.launch import S3Location
from weft_core.objects import Bucket, ObjectInfo
from weft_core.store.models import Model, ModelVersion
from weft_core.store.registry import summary
from weft_core.store.scope import Scope

_MOST_LISTED = 10_000


@dataclass(frozen=True)
class VersionFiles:
    """Where a version's objects are, and what they were when it was registered."""

    words: str  # 'model mnist@3'
    location: S3Location | None  # none: the installation's own store
    prefix: str  # with a slash at its end
    registered: dict[str, Any] | None

    def bucket(self, context: Context) -> Bucket:
        return context.objects if self.location is None else open_store(context, self.location)

    def listing(self, bucket: Bucket) -> list[ObjectInfo]:
        """All of them, if they are what was registered.

        Raises:
            FilesGone: they are not.
            StoreError: the store refuses or is away.
        """
        found = [info for info in bucket.objects(self.prefix) if not info.key.endswith("/")]
        where = f"{bucket.container}/{self.prefix}" if self.location else "Weft's own store"
        if not found:
            raise FilesGone(f"{self.words}: its objects are gone, nothing is at {where}")
        now = summary((info.key.removeprefix(self.prefix), info.size) for info in found)
        if self.registered and now["sha256"] != self.registered["sha256"]:
            raise FilesGone(
                f"{self.words}: its objects are not what was registered any more: {_words(now)} at {where} now, "
                f"{_words(self.registered)} then"
            )
        return found


class FilesGone(Exception):
    """A version's objects have been deleted or changed by somebody; the message is for the user."""


def _words(files: dict[str, Any]) -> str:
    return f"{files['files']} file{'' if files['files'] == 1 else 's'} of {files['bytes']:,} bytes"


def version_files(context: Context, scope: Scope, model: Model, version: ModelVersion) -> VersionFiles:
    """Raises StoreGone: its data store is not known any more."""
    try:
        location = version_location(scope, context.box, version)
    except StoreGone as error:
        raise StoreGone(f"model {model.name}@{version.number} can't be reached any more: {error}") from None
    return VersionFiles(f"model {model.name}@{version.number}", location, f"{version.prefix}/", version.files)


def open_listing(context: Context, files: VersionFiles) -> tuple[Bucket, list[ObjectInfo]]:
    """Raises Problem (results_gone, store_refused) and StoreError."""
    with users_store():
        bucket = files.bucket(context)
        try:
            return bucket, files.listing(bucket)
        except FilesGone as error:
            raise Problem(RESULTS_GONE, str(error)) from error


def list_version(context: Context, files: VersionFiles) -> FileList:
    _, found = open_listing(context, files)
    shown = [
        FileView(path=info.key.removeprefix(files.prefix), size=info.size, modified=info.modified)
        for info in found[:_MOST_LISTED]
    ]
    return FileList(files=shown, complete=len(found) <= _MOST_LISTED)


def zip_version(context: Context, files: VersionFiles) -> Iterator[bytes]:
    """A zip that is made while it is sent. Errors come before the first byte."""
    bucket, found = open_listing(context, files)
    return stream_zip(
        Entry(info.key.removeprefix(files.prefix), info.modified, lambda key=info.key: bucket.get_stream(key))  # type: ignore[misc]
        for info in found
    )
