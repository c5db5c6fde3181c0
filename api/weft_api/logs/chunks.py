"""Where a job's log lies: the one door to its chunks, for every read (pages, followers, search, download)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, func, select

from weft_api.auth import Principal
from weft_api.context import Context
from weft_core.store.models import LogChunk, LogCursor
from weft_core.store.scope import Scope

_CLOCKS_APART = timedelta(minutes=5)
_STEP = 16
"""Chunks looked through at once for a time."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of one learner.

    ``body``: UTF-8, each line ended by a newline, which is nowhere else. ``times``: milliseconds since the epoch by the
    learner's clock, one a line.
    """

    first_line: int
    lines: int
    attempt: int
    rank: int
    body: bytes
    times: Sequence[int]

    @property
    def end(self) -> int:
        """The number of the line after the last."""
        return self.first_line + self.lines

    def texts(self) -> list[bytes]:
        return self.body.split(b"\n")[:-1]


@dataclass(frozen=True)
class Wanted:
    """Whose lines; empty members limit nothing."""

    learner: int | None = None
    attempt: int | None = None
    since: datetime | None = None
    """Leaves out chunks that came long before; those that come may begin with older lines."""


class ChunkReader:
    """Reads the chunks of one job. Each call is a short transaction of its own: none is open between two."""

    def __init__(self, context: Context, who: Principal, job_id: str) -> None:
        self._database = context.database
        self._project_id = who.project_id
        self._job_id = job_id

    def end(self) -> int:
        """How many lines there are now, all learners counted together. Lines below it are all there and never change;
        0 when the job is gone."""
        query = select(LogCursor.next_line).where(
            LogCursor.job_id == self._job_id, LogCursor.project_id == self._project_id
        )
        with self._database.transaction() as session:
            return session.scalar(query) or 0

    def forward(self, start_line: int, wanted: Wanted, limit: int) -> list[Chunk]:
        """Chunks with lines from ``start_line`` on (the first may begin before it), ascending, at most ``limit``; fewer
        only when there are no more."""
        query = self._query(wanted).where(LogChunk.first_line >= self._chunk_of(start_line))
        found = self._read(query.order_by(LogChunk.first_line).limit(limit + 1))
        return [chunk for chunk in found if chunk.end > start_line][:limit]

    def backward(self, before_line: int, wanted: Wanted, limit: int) -> list[Chunk]:
        """Chunks with lines before ``before_line`` (the first may go on beyond it), descending, at most ``limit``;
        fewer only when there are no more."""
        query = self._query(wanted).where(LogChunk.first_line < before_line)
        return self._read(query.order_by(LogChunk.first_line.desc()).limit(limit))

    def at(self, time: datetime, wanted: Wanted) -> int:
        """The number of the first line at or after ``time``; the end when there is none yet."""
        end = self.end()
        wanted = Wanted(wanted.learner, wanted.attempt, time)
        position, milliseconds = 0, time.timestamp() * 1000
        while True:
            chunks = self.forward(position, wanted, _STEP)
            for chunk in chunks:
                for number, at in enumerate(chunk.times, chunk.first_line):
                    if at >= milliseconds:
                        return number
            if len(chunks) < _STEP:
                return end
            position = chunks[-1].end

    def _query(self, wanted: Wanted) -> Select[LogChunk]:
        query = select(LogChunk).where(LogChunk.project_id == self._project_id, LogChunk.job_id == self._job_id)
        if wanted.learner is not None:
            query = query.where(LogChunk.rank == wanted.learner - 1)
        if wanted.attempt is not None:
            query = query.where(LogChunk.attempt == wanted.attempt)
        if wanted.since is not None:
            # Lines arrive after they are written; the slack is for clocks that differ.
            query = query.where(LogChunk.created_at >= wanted.since - _CLOCKS_APART)
        return query

    def _chunk_of(self, line: int) -> ColumnElement[int]:
        """Where the chunk begins that has ``line`` in it, found by the index, however long the log is."""
        query = select(func.max(LogChunk.first_line)).where(
            LogChunk.job_id == self._job_id, LogChunk.first_line <= line
        )
        return func.coalesce(query.scalar_subquery(), 0)

    def _read(self, query: Select[LogChunk]) -> list[Chunk]:
        with self._database.transaction() as session:
            rows = Scope(session, self._project_id).all(query)
        return [Chunk(row.first_line, row.lines, row.attempt, row.rank, row.body, row.times) for row in rows]
