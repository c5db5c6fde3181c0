"""How logs are written down: the times of a chunk in Postgres, and the archive in S3.

An object of the archive is a sequence of frames. Each frame is a frame of Zstandard, which can be read alone. It holds
a few MiB of consecutive lines, as chunks. Postgres knows where each frame begins (``log_frames``). However long the log
is, one query of that index and one read of one frame find a line, a time or the end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import zstandard

from weft_core.deflate import deflate
from weft_core.objects import job_prefix

FRAME_BYTES = 2 << 20
"""Bytes of lines, before compression; a frame ends with the chunk that reaches this size."""
_CHUNK_BYTES = 256 << 10
"""Small neighbours are joined up to this size."""
_CHUNK_LINES = 2000
_HEADER = struct.Struct("<QIIIII")
_LEVEL = 6  # of 22: 100 MB/s on one core, and a tenth smaller than the default


class Damaged(Exception):
    """The bytes that were read are not a frame of an archive."""


@dataclass(frozen=True)
class ArchivedChunk:
    """Consecutive lines of one learner; the attributes are columns of ``log_chunks``."""

    first_line: int
    lines: int
    attempt: int
    rank: int
    body: bytes
    times: bytes


def logs_prefix(project_id: str, job_id: str) -> str:
    """The prefix of a job's archive in the installation's own bucket."""
    return f"{job_prefix(project_id, job_id)}logs/"


def pack_times(times: Sequence[int]) -> bytes:
    """Milliseconds since the epoch (0 ≤ t < 2^53): the differences, as 64-bit integers, compressed."""
    first = times[:1]
    deltas = [*first, *(after - before for before, after in pairwise(times))]
    return deflate(struct.pack(f"<{len(deltas)}q", *deltas))


def unpack_times(packed: bytes) -> list[int]:
    """The times that were given to ``pack_times``."""
    raw = zlib.decompress(packed)
    return list(accumulate(struct.unpack(f"<{len(raw) // 8}q", raw)))


def join(chunks: Iterable[ArchivedChunk]) -> Iterator[ArchivedChunk]:
    """The same lines in fewer chunks: a program that prints line by line makes a chunk of each line."""
    group: list[ArchivedChunk] = []
    size = lines = 0
    for chunk in chunks:
        fits = size + len(chunk.body) <= _CHUNK_BYTES and lines + chunk.lines <= _CHUNK_LINES
        if group and not (fits and (chunk.attempt, chunk.rank) == (group[0].attempt, group[0].rank)):
            yield _joined(group)
            group, size, lines = [], 0, 0
        group.append(chunk)
        size += len(chunk.body)
        lines += chunk.lines
    if group:
        yield _joined(group)


def _joined(group: list[ArchivedChunk]) -> ArchivedChunk:
    if len(group) == 1:
        return group[0]
    first = group[0]
    times = [time for chunk in group for time in unpack_times(chunk.times)]
    body = b"".join(chunk.body for chunk in group)
    return ArchivedChunk(first.first_line, len(times), first.attempt, first.rank, body, pack_times(times))


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
    """Makes one object of the archive, frame by frame."""

    data: bytearray = field(default_factory=bytearray)

    def add(self, chunks: Sequence[ArchivedChunk]) -> FrameInfo:
        """Add a frame of these consecutive chunks."""
        joined = list(join(chunks))
        raw = b"".join(
            piece
            for chunk in joined
            for piece in (
                _HEADER.pack(
                    chunk.first_line, chunk.lines, chunk.attempt, chunk.rank, len(chunk.times), len(chunk.body)
                ),
                chunk.times,
                chunk.body,
            )
        )
        frame = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(raw)
        info = FrameInfo(
            chunks[0].first_line,
            sum(chunk.lines for chunk in chunks),
            len(self.data),
            len(frame),
            sorted({chunk.attempt for chunk in chunks}),
            sorted({chunk.rank for chunk in chunks}),
        )
        self.data += frame
        return info


def read_frame(data: bytes) -> list[ArchivedChunk]:
    """The chunks of a frame, in order.

    Raises:
        Damaged: the bytes are not a frame.
    """
    try:
        raw = zstandard.ZstdDecompressor().decompress(data)
        chunks = []
        place = 0
        while place < len(raw):
            first_line, lines, attempt, rank, times_size, body_size = _HEADER.unpack_from(raw, place)
            times_at = place + _HEADER.size
            body_at = times_at + times_size
            place = body_at + body_size
            chunks.append(ArchivedChunk(first_line, lines, attempt, rank, raw[body_at:place], raw[times_at:body_at]))
    except (zstandard.ZstdError, struct.error) as error:
        raise Damaged(str(error)) from error
    if not chunks:
        raise Damaged("it is empty")
    return chunks
