"""Single files of a job's code, read from the bundle in the store without fetching all of it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.files.schemas import CodeFile, CodeFiles
from weft_api.files.service import find_definition
from weft_api.http.problems import not_found
from weft_core.objects import Bucket, ObjectInfo

_PIECE = 256 << 10  # of one request; a directory and a small file are mostly in one each
_MOST_LISTED = 10_000


class _Remote(io.RawIOBase):
    """An object of the store as a file that can be sought in."""

    def __init__(self, bucket: Bucket, info: ObjectInfo) -> None:
        self._bucket = bucket
        self._info = info
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._info.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), self._info.size - self._at)
        if size <= 0:
            return 0
        data = self._bucket.get_range(self._info.key, self._at, size)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def _bundle(context: Context, who: Principal, job_id: str) -> Iterator[zipfile.ZipFile]:
    info = find_definition(context, who, job_id)
    # It was checked when it came (weft_core.bundle), and under its sha256 it can't have changed since.
    with (
        io.BufferedReader(_Remote(context.objects, info), _PIECE) as file,
        zipfile.ZipFile(file) as archive,
    ):
        yield archive


def list_code(context: Context, who: Principal, job_id: str) -> CodeFiles:
    """The files of a job's code. Raises Problem not_found."""
    with _bundle(context, who, job_id) as archive:
        files = [
            CodeFile(path=entry.filename, size=entry.file_size, crc32=f"{entry.CRC:08x}")
            for entry in archive.infolist()
            if not entry.is_dir()
        ]
    return CodeFiles(files=files[:_MOST_LISTED], complete=len(files) <= _MOST_LISTED)


def read_code(context: Context, who: Principal, job_id: str, path: str, most: int) -> tuple[int, bytes]:
    """A file's size, and its first bytes. Raises Problem not_found."""
    with _bundle(context, who, job_id) as archive:
        try:
            info = archive.getinfo(path)
        except KeyError:
            raise not_found("file", path[:200]) from None
        if info.is_dir():
            raise not_found("file", path[:200])
        with archive.open(info) as file:
            return info.file_size, file.read(most)
