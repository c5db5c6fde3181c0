"""Log lines and metrics on their way to the API, on disk, where they outlive an API that is away and the agent itself.

They are in segments, ``<n>.jsonl``. Each line is the JSON object that the API takes. ``cursor.json`` says which batch
is next. The end of a batch is fixed there before it is sent, so that an agent that sends the batch again, under the
same sequence number, sends the very same lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

BATCH_LINES = 2000
BATCH_BYTES = 512 * 1024
"""Bytes of JSON, unless a single line is longer: the API takes 8 MiB, and the longest line, all escaped, has 6."""
METRIC_BATCH_BYTES = 128 * 1024
"""The same of metrics. A value takes 8 bytes at least, so a batch has fewer than the 20,000 that the API takes."""
_SEGMENT_BYTES = 8 << 20
_CURSOR = "cursor.json"


class _Cursor:
    """How far the batches have been sent.

    Args:
        instance: the agent's that the batches are sent under.
        end: None: no batch is on its way.
    """

    def __init__(
        self, instance: str, sequence: int = 0, segment: int = 0, start: int = 0, end: int | None = None
    ) -> None:
        self.instance = instance
        self.sequence = sequence
        self.segment = segment
        self.start = start
        self.end = end


class Batch(NamedTuple):
    sequence: int
    lines: list[bytes]


class Spool:
    """One thread appends, another takes batches.

    Args:
        folder: of its files.
        instance: the agent's.
        batch_bytes: the size of a batch, unless a single line is longer.
    """

    def __init__(self, folder: Path, instance: str, batch_bytes: int = BATCH_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._batch_bytes = batch_bytes
        self._folder = folder
        self._cursor = self._load() or _Cursor(instance)
        self._segment = max((int(path.stem) for path in folder.glob("*.jsonl")), default=0)
        self._size = self._path(self._segment).stat().st_size if self._path(self._segment).exists() else 0
        self._out = os.open(self._path(self._segment), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # Two counters, so that a single thread changes each of them.
        self._appended = sum(path.stat().st_size for path in folder.glob("*.jsonl"))
        self._arrived = self._cursor.start
        self._save()

    @property
    def instance(self) -> str:
        return self._cursor.instance

    @property
    def sequence(self) -> int:
        """The number of the next batch."""
        return self._cursor.sequence

    @property
    def waiting(self) -> int:
        """Bytes that have not arrived yet."""
        return self._appended - self._arrived

    def clear(self) -> int:
        """Give up the lines that have not arrived. Returns their number. No batch may be taken any more."""
        lines, start = 0, self._cursor.start
        for segment in range(self._cursor.segment, self._segment + 1):
            with suppress(FileNotFoundError), self._path(segment).open("rb") as file:
                file.seek(start)
                while data := file.read(BATCH_BYTES):
                    lines += data.count(b"\n")
                self._path(segment).unlink()
            start = 0
        (self._folder / _CURSOR).unlink(missing_ok=True)
        return lines

    def append(self, lines: Iterable[bytes]) -> None:
        """``lines``: JSON objects.

        Raises:
            OSError: there is no room, and no line was appended.
        """
        data = b"".join(line + b"\n" for line in lines)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._out, view) :]
        except OSError:
            os.ftruncate(self._out, self._size)
            raise
        self._size += len(data)
        self._appended += len(data)
        if self._size >= _SEGMENT_BYTES:
            os.close(self._out)
            self._segment += 1
            self._size = 0
            self._out = os.open(self._path(self._segment), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def next_batch(self) -> Batch | None:
        """The batch to send now: the same batch until ``done``. None: nothing is left."""
        cursor = self._cursor
        while True:
            segments_after = cursor.segment < self._segment  # checked before the read: a closed segment is whole
            lines = self._read(cursor)
            if lines:
                break
            if not segments_after:
                return None
            self._path(cursor.segment).unlink()
            cursor.segment, cursor.start = cursor.segment + 1, 0
        cursor.end = cursor.start + sum(len(line) + 1 for line in lines)
        self._save()
        return Batch(cursor.sequence, lines)

    def done(self) -> None:
        """The batch has arrived."""
        if self._cursor.end is None:
            raise ValueError("no batch is on its way")
        self._arrived += self._cursor.end - self._cursor.start
        self._cursor.start, self._cursor.end = self._cursor.end, None
        self._cursor.sequence += 1
        self._save()

    def _read(self, cursor: _Cursor) -> list[bytes]:
        with self._path(cursor.segment).open("rb") as file:
            # Never more than there is: a large buffer that shrinks afterwards leaves holes in the agent's memory.
            there = max(0, file.seek(0, os.SEEK_END) - cursor.start)  # a power cut may have taken its end
            file.seek(cursor.start)
            data = file.read(min(self._batch_bytes, there) if cursor.end is None else cursor.end - cursor.start)
            if b"\n" not in data:
                data += file.readline()
        lines = data.split(b"\n")[:-1]
        return lines if cursor.end is not None else lines[:BATCH_LINES]

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:06d}.jsonl"

    def _load(self) -> _Cursor | None:
        try:
            return _Cursor(**json.loads((self._folder / _CURSOR).read_text()))
        except FileNotFoundError:
            return None

    def _save(self) -> None:
        new = self._folder / "cursor.new"
        new.write_text(json.dumps(vars(self._cursor)))
        new.replace(self._folder / _CURSOR)


def has_leftover(folder: Path) -> bool:
    """Whether an agent that died here has left a spool."""
    return (folder / _CURSOR).exists()
