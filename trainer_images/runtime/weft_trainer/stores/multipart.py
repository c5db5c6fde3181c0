"""The upload of a file. A large file goes in parts, side by side. A part that fails is sent again alone; if it fails
for good, the other parts are removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Protocol, runtime_checkable

from weft_trainer.errors import DataError, Fenced, TrainerError
from weft_trainer.stores.retry import Temporary, patiently
from weft_trainer.stores.store import Multipart, Store, Stored

PART = 8 << 20
"""Bytes; as many parts as are sent at once are held in memory. S3 takes no parts below 5 MiB but the last."""
_MOST_PARTS = 9_000  # S3 takes 10,000


@runtime_checkable
class MultipartStore(Store, Protocol):
    """A store that takes an object in parts, and shows it when all of them are there."""

    def begin_multipart(self, key: str) -> Multipart: ...

    def put_part(self, upload: Multipart, number: int, data: bytes) -> str:
        """``number`` is from 1. Returns the part's ETag."""

    def complete_multipart(self, upload: Multipart, etags: Sequence[str]) -> None:
        """``etags`` in order of the parts' numbers."""

    def abort_multipart(self, upload: Multipart) -> None: ...

    def head(self, key: str) -> Stored | None: ...


def send_file(
    store: Store, key: str, path: Path, parts: Executor, patience: float, fenced: Callable[[], bool] = lambda: False
) -> None:
    """Raises: DataError, and Fenced."""
    size = path.stat().st_size
    if size <= PART or not isinstance(store, MultipartStore):
        patiently(lambda: store.put_file(key, path), patience)
        return
    upload = patiently(lambda: store.begin_multipart(key), patience)
    try:
        step = max(PART, -(-size // _MOST_PARTS))

        def put(number: int) -> str:
            if fenced():
                raise Fenced
            data = _read(path, (number - 1) * step, min(step, size - (number - 1) * step))
            return patiently(lambda: store.put_part(upload, number, data), patience)

        futures = [parts.submit(put, number) for number in range(1, -(-size // step) + 1)]
        try:
            etags = [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
        if fenced():
            raise Fenced
        patiently(lambda: _complete(store, upload, etags, size), patience)
    except BaseException:
        with contextlib.suppress(TrainerError, Fenced):
            store.abort_multipart(upload)
        raise


def _complete(store: MultipartStore, upload: Multipart, etags: Sequence[str], size: int) -> None:
    try:
        store.complete_multipart(upload, etags)
    except TrainerError as error:
        if isinstance(error, Temporary):
            raise
        # The answer to an earlier try may have been lost: then there is no such upload any more, and the object.
        there = store.head(upload.key)
        if there is None or there.size != size or (there.etag and not there.etag.endswith(f"-{len(etags)}")):
            raise


def _read(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        data = os.pread(file.fileno(), length, start)
    if len(data) != length:
        raise DataError(f"{path.name} became shorter while it was being sent")
    return data
