"""Reading a job's log, a few chunks at a time: no more than a page is ever in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft_api.logs.chunks import Chunk, ChunkReader, Wanted
from weft_api.logs.schemas import LogLine

_CHUNKS = 16
"""Read at once. A chunk has up to 1 MiB."""
_PAGE_BYTES = 4 << 20


@dataclass(frozen=True)
class LogFilter(Wanted):
    """Which lines; empty members limit nothing."""

    text: str = ""

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


def read_page(reader: ChunkReader, wanted: LogFilter, start: int, limit: int) -> Page:
    """Up to ``limit`` of the lines from ``start`` on, as far as they are there now."""
    # The end is read first: what is committed up to there is all there will ever be, so skipping to it skips nothing.
    end = reader.end()
    lines: list[LogLine] = []
    read = 0
    position = start
    while position < end:
        chunks = reader.forward(position, wanted, _CHUNKS)
        for chunk in chunks:
            for line in _lines(chunk, position):
                if len(lines) >= limit:
                    return Page(lines, line.n, more=True)
                if wanted.takes(line.t, line.text):
                    lines.append(line)
                position = line.n + 1
            read += len(chunk.body)
            if read >= _PAGE_BYTES:
                return Page(lines, position, more=position < end)
        if len(chunks) < _CHUNKS:
            break
    return Page(lines, max(position, end), more=False)


def _lines(chunk: Chunk, start: int) -> Iterator[LogLine]:
    for number, (text, at) in enumerate(zip(chunk.texts(), chunk.times, strict=True), chunk.first_line):
        if number >= start:
            yield LogLine(
                n=number, t=at, attempt=chunk.attempt, learner=chunk.rank + 1, text=text.decode("utf-8", "replace")
            )


def tail_start(reader: ChunkReader, wanted: LogFilter, tail: int) -> int:
    """The line from which on there are ``tail`` lines that ``wanted`` takes, or all of them."""
    end = reader.end()
    if tail == 0:
        return end
    if wanted == LogFilter():
        return max(0, end - tail)
    missing, position = tail, end
    while True:
        chunks = reader.backward(position, wanted, _CHUNKS)
        for chunk in chunks:
            fitting = [line.n for line in _lines(chunk, 0) if line.n < end and wanted.takes(line.t, line.text)]
            if len(fitting) >= missing:
                return fitting[-missing]
            missing -= len(fitting)
            position = chunk.first_line
        if len(chunks) < _CHUNKS:
            return 0
