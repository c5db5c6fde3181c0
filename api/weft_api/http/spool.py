"""Uploads are written to a temporary file before they go to the store, and their SHA-256 is computed meanwhile."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

_PIECE = 1 << 20


@dataclass(frozen=True)
class Spooled:
    """A complete upload in a temporary file. :meth:`discard` removes the file."""

    path: Path
    sha256: str
    size: int

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


class _Writer:
    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="weft-upload-", suffix=".zip")
        self._file = os.fdopen(handle, "wb")
        self._path = Path(name)
        self._sha = hashlib.sha256()
        self._size = 0
        self._done = False

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._sha.update(piece)
        self._size += len(piece)

    def finish(self) -> Spooled:
        self._file.close()
        self._done = True
        return Spooled(self._path, self._sha.hexdigest(), self._size)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._done:
            self._file.close()
            self._path.unlink(missing_ok=True)


async def spool_body(request: Request) -> Spooled:
    """The request's whole body. Threads write and hash it, a MiB at a time."""
    with _Writer() as writer:
        piece = bytearray()
        async for chunk in request.stream():
            piece += chunk
            if len(piece) >= _PIECE:
                await run_in_threadpool(writer.write, bytes(piece))
                piece.clear()
        await run_in_threadpool(writer.write, bytes(piece))
        return writer.finish()


def spool_of(path: Path) -> Spooled:
    """An existing file as an upload, which from now on owns the file."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Spooled(path, sha256, path.stat().st_size)


def spool_file(file: BinaryIO) -> Spooled:
    """A copy of an uploaded part, which may be in memory."""
    with _Writer() as writer:
        while piece := file.read(_PIECE):
            writer.write(piece)
        return writer.finish()
