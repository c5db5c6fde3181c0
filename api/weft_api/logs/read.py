"""Reading a job's log, a few chunks at a time: no more than a page is ever in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, func, select

from weft_api.logs.schemas import LogLine
from weft_core.store.models import LogChunk, LogCursor
from weft_core.store.scope import Scope

_CHUNKS = 16
"""Read at once. A chunk has up to 1 MiB."""
_PAGE_BYTES = 4 << 20
_CLOCKS_APART = timedelta(minutes=5)


@dataclass(frozen=True)
class LogFilter:
    """Which lines; empty members limit nothing."""

    learner: int | None = None
    attempt: int | None = None
    since: datetime | None = None
    text: str = ""

    def chunks(self, scope: Scope, job_id: str) -> Select[LogChunk]:
        query = scope.select(LogChunk, LogChunk.job_id == job_id)
        if self.learner is not None:
            query = query.where(LogChunk.rank == self.learner - 1)
        if self.attempt is not None:
            query = query.where(LogChunk.attempt == self.attempt)
        if self.since is not None:
            # Lines arrive after they are written; the slack is for clocks that differ.
            query = query.where(LogChunk.created_at >= self.since - _CLOCKS_APART)
        return query

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


def read_page(scope: Scope, job_id: str, wanted: LogFilter, start: int, limit: int) -> Page:
    """Up to ``limit`` of the lines from ``start`` on, as far as they are there now."""
    # The end is read first: what is committed up to there is all there will ever be, so skipping to it skips nothing.
    end = scope.session.scalar(select(LogCursor.next_line).where(LogCursor.job_id == job_id)) or 0
    lines: list[LogLine] = []
    read = 0
    position = start
    while position < end:
        query = wanted.chunks(scope, job_id).where(
            LogChunk.first_line >= _chunk_of(job_id, position), LogChunk.first_line < end
        )
        chunks = scope.all(query.order_by(LogChunk.first_line).limit(_CHUNKS))
        for chunk in chunks:
            for line in _lines(chunk, position):
                if len(lines) >= limit:
                    return Page(lines, line.n, more=True)
                if wanted.takes(line.t, line.text):
                    lines.append(line)
                position = line.n + 1
            read += len(chunk.body)
            scope.session.expunge(chunk)
            if read >= _PAGE_BYTES:
                return Page(lines, position, more=position < end)
        if len(chunks) < _CHUNKS:
            break
        position = max(position, chunks[-1].first_line + chunks[-1].lines)
    return Page(lines, max(position, end), more=False)


def _chunk_of(job_id: str, line: int) -> ColumnElement[int]:
    """Where the chunk begins that has ``line`` in it, found by the index, however long the log is."""
    query = select(func.max(LogChunk.first_line)).where(LogChunk.job_id == job_id, LogChunk.first_line <= line)
    return func.coalesce(query.scalar_subquery(), 0)


def _lines(chunk: LogChunk, start: int) -> Iterator[LogLine]:
    texts = chunk.body.split(b"\n")[:-1]
    for number, (text, at) in enumerate(zip(texts, chunk.times, strict=True), chunk.first_line):
        if number >= start:
            yield LogLine(
                n=number, t=at, attempt=chunk.attempt, learner=chunk.rank + 1, text=text.decode("utf-8", "replace")
            )


def tail_start(scope: Scope, job_id: str, wanted: LogFilter, tail: int) -> int:
    """The line from which on there are ``tail`` lines that ``wanted`` takes, or all of them."""
    end = scope.session.scalar(select(LogCursor.next_line).where(LogCursor.job_id == job_id)) or 0
    if tail == 0:
        return end
    if wanted == LogFilter():
        return max(0, end - tail)
    missing, position = tail, end
    while True:
        query = wanted.chunks(scope, job_id).where(LogChunk.first_line < position)
        chunks = scope.all(query.order_by(LogChunk.first_line.desc()).limit(_CHUNKS))
        for chunk in chunks:
            fitting = [line.n for line in _lines(chunk, 0) if line.n < end and wanted.takes(line.t, line.text)]
            if len(fitting) >= missing:
                return fitting[-missing]
            missing -= len(fitting)
            position = chunk.first_line
            scope.session.expunge(chunk)
        if len(chunks) < _CHUNKS:
            return 0
