"""How logs are written down: the times of a chunk in Postgres, and the archive in S3.

An object of the archive is a row of frames. A frame is Zstandard's, can be read alone, and holds a few MiB of
consecutive lines as records; where each frame begins is in Postgres (``log_frames``). So a line, a time or the tail is
found by one look into an index and one read of one frame, however long the log is.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import zstandard

from weft_core.objects import job_prefix

FRAME_BYTES = 2 << 20
"""Of lines, before compression; a frame ends with the record that reaches it."""
_RECORD_BYTES = 256 << 10
"""Small neighbours are joined up to this size."""
_RECORD_LINES = 2000
_HEADER = struct.Struct("<QIIIII")
_LEVEL = 6  # of 22: 100 MB/s on one core, and a tenth smaller than the default


class Damaged(Exception):
    """What was read is no frame of an archive."""


@dataclass(frozen=True)
class Record:
    """Consecutive lines of one learner; members are those of ``log_chunks``."""

    first_line: int
    lines: int
    attempt: int
    rank: int
    body: bytes
    times: bytes


def logs_prefix(project_id: str, job_id: str) -> str:
    """Where a job's archive is in the installation's own bucket."""
    return f"{job_prefix(project_id, job_id)}logs/"


def pack_times(times: Sequence[int]) -> bytes:
    """Milliseconds since the epoch (0 ≤ t < 2^53): the differences, as 64-bit integers, compressed."""
    first = times[:1]
    deltas = [*first, *(after - before for before, after in pairwise(times))]
    return zlib.compress(struct.pack(f"<{len(deltas)}q", *deltas), 1)


def unpack_times(packed: bytes) -> list[int]:
    """What ``pack_times`` was given."""
    raw = zlib.decompress(packed)
    return list(accumulate(struct.unpack(f"<{len(raw) // 8}q", raw)))


def join(records: Iterable[Record]) -> Iterator[Record]:
    """The same lines in fewer records: programs that print line by line make chunks of a line each."""
    group: list[Record] = []
    size = lines = 0
    for one in records:
        fits = size + len(one.body) <= _RECORD_BYTES and lines + one.lines <= _RECORD_LINES
        if group and not (fits and (one.attempt, one.rank) == (group[0].attempt, group[0].rank)):
            yield _joined(group)
            group, size, lines = [], 0, 0
        group.append(one)
        size += len(one.body)
        lines += one.lines
    if group:
        yield _joined(group)


def _joined(group: list[Record]) -> Record:
    if len(group) == 1:
        return group[0]
    first = group[0]
    times = [time for one in group for time in unpack_times(one.times)]
    body = b"".join(one.body for one in group)
    return Record(first.first_line, len(times), first.attempt, first.rank, body, pack_times(times))


@dataclass(frozen=True)
class FrameInfo:
    """A frame in its object: where it is, and whose lines it has."""

    first_line: int
    lines: int
    start: int
    size: int
    attempts: list[int]
    ranks: list[int]


@dataclass
class ObjectWriter:
    """Puts together one object of the archive, frame by frame."""

    data: bytearray = field(default_factory=bytearray)

    def add(self, records: Sequence[Record]) -> FrameInfo:
        """One more frame, of these consecutive records."""
        joined = list(join(records))
        raw = b"".join(
            piece
            for one in joined
            for piece in (
                _HEADER.pack(one.first_line, one.lines, one.attempt, one.rank, len(one.times), len(one.body)),
                one.times,
                one.body,
            )
        )
        frame = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(raw)
        info = FrameInfo(
            records[0].first_line,
            sum(one.lines for one in records),
            len(self.data),
            len(frame),
            sorted({one.attempt for one in records}),
            sorted({one.rank for one in records}),
        )
        self.data += frame
        return info


def read_frame(data: bytes) -> list[Record]:
    """The records of a frame, in order.

    Raises:
        Damaged: these bytes are none.
    """
    try:
        raw = zstandard.ZstdDecompressor().decompress(data)
        records = []
        place = 0
        while place < len(raw):
            first_line, lines, attempt, rank, times_size, body_size = _HEADER.unpack_from(raw, place)
            times_at = place + _HEADER.size
            body_at = times_at + times_size
            place = body_at + body_size
            records.append(Record(first_line, lines, attempt, rank, raw[body_at:place], raw[times_at:body_at]))
    except (zstandard.ZstdError, struct.error) as error:
        raise Damaged(str(error)) from error
    if not records:
        raise Damaged("it is empty")
    return records
