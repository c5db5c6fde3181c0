"""The store's buckets into an archive, and out of one.

Programs go on writing while objects are copied. Objects are stored before rows name them, and are not deleted meanwhile
(:mod:`weft_core.store.backups`). Learners' own objects may change, though, above all checkpoints: a generation is
complete when ``generations/<id>.json`` is there, and its files may go as soon as that is deleted. So a generation
counts only if it was there before and after a listing that has its files, and was still there after the copy of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, cast

from boto3.s3 import inject
from boto3.s3.transfer import TransferConfig

from weft_core.objects import StoreError, make_client, store_errors
from weft_core.settings import S3Settings
from weft_embedded.backup.archive import ArchiveMember, StoredObject, Writer

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_SMALL = 1 << 20
_THREADS = 8
_AT_ONCE = 64
_PASSES = 5
_GENERATION = "generations/"
_TRANSFER = TransferConfig(multipart_threshold=64 << 20, multipart_chunksize=64 << 20, max_concurrency=4)


@dataclass(frozen=True)
class _Listed:
    size: int
    etag: str
    modified: float


class Buckets:
    """All buckets of a store, opened as its administrator.

    Args:
        endpoint: the store.
        settings: with the administrator's keys.
    """

    def __init__(self, endpoint: str, settings: S3Settings) -> None:
        self._endpoint = endpoint
        self._s3: S3Client = make_client(
            endpoint, settings.region, settings.access_key, settings.secret_key.get_secret_value()
        )

    def names(self) -> list[str]:
        """Raises StoreError."""
        with store_errors(self._endpoint, "buckets"):
            return [bucket["Name"] for bucket in self._s3.list_buckets().get("Buckets", [])]

    def size(self) -> int:
        """Bytes of all objects. Raises StoreError."""
        return sum(listed.size for name in self.names() for listed in self._list(name).values())

    # --- into an archive ---

    def save(self, writer: Writer, progress: Callable[[int], None]) -> int:
        """Copy all objects; returns how many.

        Args:
            progress: gets bytes as they are copied.

        Raises:
            StoreError: the store does not answer.
        """
        counted = 0
        for name in self.names():
            kept = self._save_bucket(writer, name, progress)
            writer.index.buckets.append(name)
            writer.index.objects |= kept
            counted += len(kept)
        return counted

    def _save_bucket(self, writer: Writer, bucket: str, progress: Callable[[int], None]) -> dict[str, StoredObject]:
        copied: dict[str, tuple[_Listed, str, StoredObject]] = {}
        before = self._list(bucket)
        for _ in range(_PASSES):
            listed = self._list(bucket)
            # Newest first, because the newest objects are deleted last.
            wanted = sorted(listed, key=lambda key: -listed[key].modified)
            missed = False
            changed = [(key, listed[key]) for key in wanted if key not in copied or copied[key][0] != listed[key]]
            for key, member, stored in self._copy(writer, bucket, changed, progress):
                if stored is None:
                    missed = True
                    copied.pop(key, None)
                else:
                    copied[key] = (listed[key], member, stored)
            after = self._list(bucket)
            complete = before.keys() & listed.keys() & after.keys()
            before = after
            if not missed:
                break
        return {
            member: stored for key, (_, member, stored) in copied.items() if _GENERATION not in key or key in complete
        }

    def _copy(
        self, writer: Writer, bucket: str, keys: Sequence[tuple[str, _Listed]], progress: Callable[[int], None]
    ) -> Iterator[tuple[str, str, StoredObject | None]]:
        """Each key with its member; without an object if it has vanished or changed meanwhile."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="copy") as pool:
            for begin in range(0, len(keys), _AT_ONCE):
                some = keys[begin : begin + _AT_ONCE]
                # Small ones are fetched side by side; large ones are read when it is their turn.
                ahead = {key: pool.submit(self._open, bucket, key) for key, listed in some if listed.size <= _SMALL}
                for key, _ in some:
                    answer = ahead[key].result() if key in ahead else self._open(bucket, key)
                    if answer is None:
                        yield key, "", None
                        continue
                    read, found = answer
                    member = f"objects/{len(writer.index.members):08d}"
                    broken = writer.add_stream(member, read, found["ContentLength"])
                    progress(found["ContentLength"])
                    stored = StoredObject(bucket, key, found.get("ContentType", ""), found.get("Metadata", {}))
                    yield key, member, None if broken else stored

    def _open(self, bucket: str, key: str) -> tuple[Callable[[int], bytes], GetObjectOutputTypeDef] | None:
        """An object, opened; a small one in memory. None: it is gone."""
        try:
            with store_errors(self._endpoint, bucket, key):
                answer = self._s3.get_object(Bucket=bucket, Key=key)
                body = answer["Body"]
                read = BytesIO(body.read()).read if answer["ContentLength"] <= _SMALL else body.read
                return cast(Callable[[int], bytes], read), answer
        except StoreError as error:
            if error.kind in ("not_found", "no_container"):
                return None
            raise

    def _list(self, bucket: str) -> dict[str, _Listed]:
        found = {}
        with store_errors(self._endpoint, bucket):
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                for entry in page.get("Contents", []):
                    modified = entry["LastModified"].timestamp()
                    found[entry["Key"]] = _Listed(entry["Size"], entry.get("ETag", ""), modified)
        return found

    # --- out of an archive ---

    def create(self, names: Iterable[str]) -> None:
        """Raises StoreError."""
        for name in names:
            with store_errors(self._endpoint, name):
                self._s3.create_bucket(Bucket=name)

    def put(self, members: Iterable[ArchiveMember], objects: Mapping[str, StoredObject]) -> None:
        """Store the objects of an archive.

        Raises:
            StoreError: the store does not answer.
            HomeError: the archive is damaged.
        """
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="put") as pool:
            under_way: list[Future[None]] = []
            for member in members:
                if (stored := objects.get(member.name)) is None:
                    continue
                if member.size > _SMALL:
                    self._put(stored, cast(BytesIO, member))
                    continue
                under_way.append(pool.submit(self._put, stored, BytesIO(member.read())))
                if len(under_way) == _AT_ONCE:
                    under_way.pop(0).result()
            for put in under_way:
                put.result()

    def _put(self, stored: StoredObject, body: BytesIO) -> None:
        more = {"ContentType": stored.content_type} if stored.content_type else {}
        with store_errors(self._endpoint, stored.bucket, stored.key):
            inject.upload_fileobj(
                self._s3,
                body,
                stored.bucket,
                stored.key,
                ExtraArgs={"Metadata": stored.metadata, **more},
                Config=_TRANSFER,
            )
