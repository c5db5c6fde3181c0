"""Zip files that are made while they are sent: of any size, in constant memory, except for an entry of each file in the
directory at the end."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Entry:
    path: str
    modified: datetime
    open: Callable[[], Iterator[bytes]]


class _Sink:
    """Collects the bytes that ``zipfile`` writes. It is not seekable, so zipfile never goes back."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


def stream_zip(entries: Iterable[Entry]) -> Iterator[bytes]:
    """The bytes of a zip file with ``entries``.

    Deflated at level 0, so framed but not compressed: trained weights hardly shrink, the CPU stays free, and
    readers that work on a stream can't read *stored* entries of unknown size.
    """
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        for entry in entries:
            info = zipfile.ZipInfo(entry.path, date_time=max(entry.modified.timetuple()[:6], (1980, 1, 1, 0, 0, 0)))
            info.compress_type = zipfile.ZIP_DEFLATED
            info._compresslevel = 0  # type: ignore[attr-defined]  # a ZipInfo does not take the archive's level
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as file:
                for piece in entry.open():
                    file.write(piece)
                    yield sink.take()
    yield sink.take()
