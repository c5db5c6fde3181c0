"""Polls of followed logs. Those of one project that are due at the same time are one transaction: its statements do
not grow in number with the jobs that are followed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from weft_api.context import Context
from weft_api.logs.chunks import Chunk
from weft_api.streaming.batch_queue import BatchQueue
from weft_core.lifecycle.states import TERMINAL
from weft_core.store.scope import Scope

DELETED = "DELETED"
"""The state that followers of a deleted job get."""
ENDED = frozenset([*TERMINAL, DELETED])
_THREADS = 4
_CHUNKS, _LEAST = 64, 4
"""Read in one poll of all its logs together; and of each log, however many there are."""
_FEW = 1000
"""The most lines that are read together with other logs."""

# The project is in the conditions, too, although Postgres shows no other: not every installation has the policies.
_STATES = """
    select jobs.id, jobs.state, jobs.reason, coalesce(next_line, 0), coalesce(archived, 0)
    from jobs left join log_cursors on job_id = jobs.id
    where jobs.project_id = %s and jobs.id = any(%s::text[])
"""
_LINES = """
    select number, first_line, lines, attempt, rank, body, times
    from unnest(%s::text[], %s::bigint[]) with ordinality as wanted (job, line, number), lateral (
      select * from log_chunks where project_id = %s and job_id = job and first_line >= line
      order by first_line limit %s
    ) as found
    order by number, first_line
"""


@dataclass(frozen=True)
class Asked:
    """A followed log. ``line``: the lines from there on are wanted; None: only the log's end."""

    job_id: str
    line: int | None


@dataclass(frozen=True)
class Seen:
    """A log at one moment: what was there when the job's state was this."""

    state: tuple[str, str]
    end: int
    """The number of its lines."""
    chunks: list[Chunk]
    """The next lines, perhaps not all."""
    far: bool = False
    """There are next lines, but not in ``chunks``: too many for this poll, in S3, or from the middle of a chunk on."""


class Polls:
    """Used from the event loop only."""

    def __init__(self, context: Context) -> None:
        self._database = context.database
        # One group at a time, so that the next one gathers meanwhile.
        self._queue = BatchQueue[Asked, Seen](_THREADS, groups_at_once=1)

    async def look(self, project_id: str, asked: Asked) -> Seen:
        """Raises what the database raises."""
        return await self._queue.run(project_id, asked, partial(self._read, project_id))

    def _read(self, project_id: str, asked: Sequence[Asked]) -> list[Seen]:
        chunks: dict[int, list[Chunk]] = defaultdict(list)
        with self._database.transaction() as session:
            connection = session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            Scope(session, project_id)
            rows = connection.exec_driver_sql(_STATES, (project_id, [log.job_id for log in asked]))
            states = {job_id: (state, reason, end, archived) for job_id, state, reason, end, archived in rows}
            found = [states.get(log.job_id, (DELETED, "the job has been deleted", 0, 0)) for log in asked]
            near = [
                number
                for number, (log, (_, _, end, archived)) in enumerate(zip(asked, found, strict=True))
                if log.line is not None and archived <= log.line < end <= log.line + _FEW
            ]
            if near:
                most = max(_CHUNKS // len(near), _LEAST)
                wanted = [asked[number].job_id for number in near], [asked[number].line for number in near]
                for number, *values in connection.exec_driver_sql(_LINES, (*wanted, project_id, most)):
                    chunks[near[number - 1]].append(Chunk(*values))
        seen = []
        for number, (log, (state, reason, end, _)) in enumerate(zip(asked, found, strict=True)):
            read = chunks[number] if number in chunks and chunks[number][0].first_line == log.line else []
            far = log.line is not None and log.line < end and not read
            seen.append(Seen((state, reason), end, read, far))
        return seen
