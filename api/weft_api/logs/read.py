"""Reading a job's log, a few chunks at a time: no more than a page is ever in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft_api.logs.chunks import Chunk, ChunkFilter, ChunkReader
from weft_api.logs.schemas import LogLine

_PAGE_BYTES = 4 << 20
SCAN_BYTES = 64 << 20
"""The most bytes that one call reads in search of rare lines."""
_AT_ONCE = 1 << 20
_FEWEST, _MOST = 2, 256
"""Chunks asked for at once. A chunk has up to 1 MiB, and may have one short line."""


@dataclass(frozen=True)
class LogFilter(ChunkFilter):
    """Which lines; empty members limit nothing."""

    text: str = ""

    @property
    def whole_chunks(self) -> bool:
        """A chunk is taken as a whole or not at all."""
        return self.since is None and not self.text

    def takes(self, time: int, text: str) -> bool:
        if self.since is not None and time < self.since.timestamp() * 1000:
            return False
        return not self.text or self.text.casefold() in text.casefold()


@dataclass(frozen=True)
class Page:
    lines: list[LogLine]
    next: int
    more: bool
    """There is more to read at once."""
    previous: int | None
    """``before`` of the page above; None when there is nothing above."""
    total: int
    """Lines in the job's log, when it was read."""


def ascending(reader: ChunkReader, start: int, wanted: ChunkFilter) -> Iterator[Chunk]:
    """The chunks with lines from ``start`` on, read as they are asked for."""

    def read(position: int, count: int) -> list[Chunk]:
        return reader.forward(position, wanted, count)

    return _walk(read, start, lambda chunk: chunk.end)


def descending(reader: ChunkReader, before: int, wanted: ChunkFilter) -> Iterator[Chunk]:
    """The chunks with lines before ``before``, the last one first, read as they are asked for."""

    def read(position: int, count: int) -> list[Chunk]:
        return reader.backward(position, wanted, count)

    return _walk(read, before, lambda chunk: chunk.first_line)


def _walk(read: Callable[[int, int], list[Chunk]], position: int, onwards: Callable[[Chunk], int]) -> Iterator[Chunk]:
    count = _FEWEST
    while True:
        chunks = read(position, count)
        yield from chunks
        if len(chunks) < count:
            return
        position = onwards(chunks[-1])
        count = how_many(chunks)


def how_many(chunks: Sequence[Chunk]) -> int:
    """How many to ask for after these: many small ones, or few large ones, about as many bytes each time."""
    size = sum(len(chunk.body) for chunk in chunks) // len(chunks) + 1
    return max(_FEWEST, min(_MOST, 8 * len(chunks), _AT_ONCE // size))


def read_page(reader: ChunkReader, wanted: LogFilter, start: int, limit: int, end: int | None = None) -> Page:
    """Up to ``limit`` of the lines from ``start`` on, as far as they are there now.

    Args:
        end: where the log ended when ``start`` was found: a tail ends there, even if more lines arrive meanwhile.
    """
    # The end is read first: no further line will ever be committed before it, so skipping to it skips nothing.
    end = reader.end() if end is None else end
    lines: list[LogLine] = []
    read = 0
    position = start
    above = min(start, end) or None
    for chunk in ascending(reader, start, wanted) if start < end else ():
        for line in lines_of(chunk, position):
            if len(lines) >= limit:
                return Page(lines, line.n, True, above, end)
            if wanted.takes(line.t, line.text):
                lines.append(line)
            position = line.n + 1
        read += len(chunk.body)
        if read >= _PAGE_BYTES:
            return Page(lines, position, position < end, above, end)
    return Page(lines, max(position, end), False, above, end)


def read_before(reader: ChunkReader, wanted: LogFilter, before: int, limit: int) -> Page:
    """The last ``limit`` of the lines before line ``before``."""
    end = reader.end()
    bottom = position = min(before, end)
    found: list[LogLine] = []
    read = 0
    for chunk in descending(reader, position, wanted):
        # Of a chunk that is wanted as a whole, no more lines are made than are asked for.
        start = min(chunk.end, bottom) - (limit - len(found)) if wanted.whole_chunks else 0
        fitting = [line for line in lines_of(chunk, start) if line.n < bottom and wanted.takes(line.t, line.text)]
        found.extend(reversed(fitting))
        position = chunk.first_line
        read += len(chunk.body)
        if len(found) >= limit:
            del found[limit:]
            position = found[-1].n
            break
        if read >= (_PAGE_BYTES if found else SCAN_BYTES):
            break
    else:
        position = 0
    found.reverse()
    return Page(found, bottom, bottom < end, position or None, end)


def lines_of(chunk: Chunk, start: int) -> Iterator[LogLine]:
    """The lines of a chunk from line ``start`` on."""
    skipped = max(0, start - chunk.first_line)
    texts = zip(chunk.texts()[skipped:], chunk.times[skipped:], strict=True)
    for number, (text, at) in enumerate(texts, chunk.first_line + skipped):
        yield LogLine(
            n=number, t=at, attempt=chunk.attempt, learner=chunk.rank + 1, text=text.decode("utf-8", "replace")
        )


def tail_start(reader: ChunkReader, wanted: LogFilter, tail: int, end: int) -> int:
    """The line from which on there are ``tail`` lines before ``end`` that ``wanted`` takes, or all of them; with a text
    that is rare, those among the last :data:`SCAN_BYTES`."""
    if tail == 0:
        return end
    if wanted == LogFilter():
        return max(0, end - tail)
    missing, read = tail, 0
    for chunk in descending(reader, end, wanted):
        if wanted.whole_chunks:
            last = min(chunk.end, end)
            if last - chunk.first_line >= missing:
                return last - missing
            missing -= last - chunk.first_line
            continue
        fitting = [line.n for line in lines_of(chunk, 0) if line.n < end and wanted.takes(line.t, line.text)]
        if len(fitting) >= missing:
            return fitting[-missing]
        missing -= len(fitting)
        read += len(chunk.body)
        if read >= SCAN_BYTES:
            return chunk.first_line
    return 0


def text_of(reader: ChunkReader, wanted: ChunkFilter, named: bool) -> Iterator[bytes]:
    """The log as text, a chunk at a time; ``named``: each line begins with its learner."""
    end = reader.end()
    for chunk in ascending(reader, 0, wanted):
        if chunk.first_line >= end:
            return  # or the download of a busy job might have no end
        prefix = f"learner {chunk.rank + 1} | ".encode()
        yield b"".join(prefix + text + b"\n" for text in chunk.texts()) if named else chunk.body
