"""Where a job's log lies: the one door to its chunks, for every read (pages, followers, search, download).

Lines below ``log_cursors.archived`` are in S3, the others are rows in Postgres. Moving them is one transaction, and
each read sees one state of the database, so a reader notices nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.logs.archive import ARCHIVE, FramePlace
from weft_core.log_archive import unpack_times
from weft_core.store.models import LogChunk, LogCursor, LogFrame
from weft_core.store.row_security import confine

_CLOCKS_APART = timedelta(minutes=5)
_STEP = 16
"""Chunks that one search for a time reads at once."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of one learner.

    ``body``: UTF-8, each line ended by a newline, which is nowhere else.
    """

    first_line: int
    lines: int
    attempt: int
    rank: int
    body: bytes
    packed_times: bytes

    @cached_property
    def times(self) -> Sequence[int]:
        """Milliseconds since the epoch by the learner's clock, one a line."""
        return unpack_times(self.packed_times)

    @property
    def end(self) -> int:
        """The number of the line after the last."""
        return self.first_line + self.lines

    def texts(self) -> list[bytes]:
        return self.body.split(b"\n")[:-1]


@dataclass(frozen=True)
class ChunkFilter:
    """The learner and the attempt of the wanted lines; empty members limit nothing."""

    learner: int | None = None
    attempt: int | None = None
    since: datetime | None = None
    """Leaves out chunks that came long before; those that come may begin with older lines."""

    def takes_chunk(self, chunk: Chunk) -> bool:
        return self.learner in (None, chunk.rank + 1) and self.attempt in (None, chunk.attempt)


class ChunkReader:
    """Reads the chunks of one job. Each call is a short transaction of its own: none is open between two, nor while S3
    is asked.

    Calls raise StoreError when S3 does not return an existing frame.
    """

    def __init__(self, context: Context, who: Principal, job_id: str) -> None:
        self._database = context.database
        self._archive = ARCHIVE.of(context)
        self._project_id = who.project_id
        self._job_id = job_id

    def end(self) -> int:
        """How many lines there are now, all learners counted together. Lines below it are all there and never change;
        0 when the job is gone."""
        query = select(LogCursor.next_line).where(
            LogCursor.job_id == self._job_id, LogCursor.project_id == self._project_id
        )
        with self._database.transaction() as session:
            confine(session, self._project_id)
            return session.scalar(query) or 0

    def forward(self, start_line: int, wanted: ChunkFilter, limit: int) -> list[Chunk]:
        """Chunks with lines from ``start_line`` on (the first may begin before it), ascending, at most ``limit``; fewer
        only when there are no more."""
        frames = self._frames(wanted).where(LogFrame.first_line >= self._beginning(LogFrame, start_line))
        rows = self._rows(wanted).where(LogChunk.first_line >= self._beginning(LogChunk, start_line))
        with self._snapshot() as session:
            # One more than the limit: the first frame may end before the start.
            places = _places(session, frames.order_by(LogFrame.first_line).limit(limit + 1))
            live: list[Chunk] = []
            if len(places) <= limit:
                live = _chunks(session, rows.order_by(LogChunk.first_line).limit(limit + 1))
        found: list[Chunk] = []
        for place in places:
            found += [chunk for chunk in self._opened(place, wanted) if chunk.end > start_line]
            if len(found) >= limit:
                return found[:limit]
        return [*found, *(chunk for chunk in live if chunk.end > start_line)][:limit]

    def backward(self, before_line: int, wanted: ChunkFilter, limit: int) -> list[Chunk]:
        """Chunks with lines before ``before_line`` (the first may go on beyond it), descending, at most ``limit``;
        fewer only when there are no more."""
        rows = self._rows(wanted).where(LogChunk.first_line < before_line)
        frames = self._frames(wanted).where(LogFrame.first_line < before_line)
        with self._snapshot() as session:
            found = _chunks(session, rows.order_by(LogChunk.first_line.desc()).limit(limit))
            places: list[FramePlace] = []
            if len(found) < limit:
                # One more than the limit: all wanted lines of the first frame may lie beyond the line.
                places = _places(session, frames.order_by(LogFrame.first_line.desc()).limit(limit - len(found) + 1))
        for place in places:
            if len(found) >= limit:
                break
            found += [chunk for chunk in reversed(self._opened(place, wanted)) if chunk.first_line < before_line]
        return found[:limit]

    def at(self, time: datetime, wanted: ChunkFilter) -> int:
        """The number of the first line at or after ``time``; the end when there is none yet."""
        return self.at_ms(int(time.timestamp() * 1000), wanted)

    def at_ms(self, milliseconds: int, wanted: ChunkFilter) -> int:
        """The same for a time in milliseconds since the epoch, exactly."""
        end = self.end()
        frame = select(LogFrame.first_line).where(self._mine(LogFrame), LogFrame.latest >= milliseconds)
        row = select(LogChunk.first_line).where(self._mine(LogChunk), LogChunk.latest >= milliseconds)
        with self._snapshot() as session:
            position = session.scalar(frame.order_by(LogFrame.first_line).limit(1))
            if position is None:
                # `latest` only grows from chunk to chunk, so the first of them is the one that grew beyond the time.
                position = session.scalar(row.order_by(LogChunk.latest, LogChunk.first_line).limit(1))
        while position is not None:
            chunks = self.forward(position, wanted, _STEP)
            for chunk in chunks:
                for number, at in enumerate(chunk.times, chunk.first_line):
                    if at >= milliseconds:
                        return number
            position = chunks[-1].end if len(chunks) == _STEP else None
        return end

    @contextmanager
    def _snapshot(self) -> Iterator[Session]:
        """A transaction that sees one state of the database, although it asks several times."""
        with self._database.transaction() as session:
            session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            confine(session, self._project_id)
            yield session

    def _mine(self, model: type[LogChunk] | type[LogFrame]) -> ColumnElement[bool]:
        return (model.job_id == self._job_id) & (model.project_id == self._project_id)

    def _rows(self, wanted: ChunkFilter) -> Select[LogChunk]:
        query = select(LogChunk).where(self._mine(LogChunk))
        if wanted.learner is not None:
            query = query.where(LogChunk.rank == wanted.learner - 1)
        if wanted.attempt is not None:
            query = query.where(LogChunk.attempt == wanted.attempt)
        if wanted.since is not None:
            # Lines arrive after they are written; the slack is for clocks that differ.
            query = query.where(LogChunk.created_at >= wanted.since - _CLOCKS_APART)
        return query

    def _frames(self, wanted: ChunkFilter) -> Select[LogFrame]:
        query = select(LogFrame).where(self._mine(LogFrame))
        if wanted.learner is not None:
            query = query.where(LogFrame.ranks.any_() == wanted.learner - 1)
        if wanted.attempt is not None:
            query = query.where(LogFrame.attempts.any_() == wanted.attempt)
        if wanted.since is not None:
            query = query.where(LogFrame.arrived_at >= wanted.since - _CLOCKS_APART)
        return query

    def _beginning(self, model: type[LogChunk] | type[LogFrame], line: int) -> ColumnElement[int]:
        """Where the chunk or frame begins that has ``line`` in it, found by the index, however long the log is."""
        query = select(func.max(model.first_line)).where(model.job_id == self._job_id, model.first_line <= line)
        return func.coalesce(query.scalar_subquery(), 0)

    def _opened(self, place: FramePlace, wanted: ChunkFilter) -> list[Chunk]:
        """The wanted chunks of a frame."""
        chunks = (
            Chunk(record.first_line, record.lines, record.attempt, record.rank, record.body, record.times)
            for record in self._archive.records(place)
        )
        return [chunk for chunk in chunks if wanted.takes_chunk(chunk)]


def _chunks(session: Session, query: Select[LogChunk]) -> list[Chunk]:
    return [
        Chunk(row.first_line, row.lines, row.attempt, row.rank, row.body, row.times) for row in session.scalars(query)
    ]


def _places(session: Session, query: Select[LogFrame]) -> list[FramePlace]:
    return [FramePlace(row.object, row.start, row.size) for row in session.scalars(query)]
