"""Following a job's log."""

from __future__ import annotations

from sqlalchemy import select

from weft_api.auth import Principal
from weft_api.context import Context
from weft_api.following import Look, event
from weft_api.logs.chunks import ChunkReader
from weft_api.logs.read import LogFilter, read_page
from weft_core.lifecycle import TERMINAL
from weft_core.store.models import Job

_PAGE = 500


class LogFollower:
    """Keeps where one follower stands. ``look`` is called by one thread at a time."""

    def __init__(self, context: Context, who: Principal, job_id: str, wanted: LogFilter, start: int) -> None:
        self._context = context
        self._who = who
        self._job_id = job_id
        self._reader = ChunkReader(context, who, job_id)
        self._wanted = wanted
        self._position = start
        self._state: tuple[str, str] | None = None

    def look(self) -> Look:
        with self._context.database.transaction() as session:
            # The state before the lines: when it is terminal now, the lines read after are all.
            query = select(Job.state, Job.reason).where(Job.project_id == self._who.project_id, Job.id == self._job_id)
            row = session.execute(query).one_or_none()
        state, reason = row if row else ("DELETED", "the job has been deleted")
        page = read_page(self._reader, self._wanted, self._position, _PAGE)
        self._position = page.next
        events = [event("line", line, line.n) for line in page.lines]
        ended = state in TERMINAL or row is None
        if not page.more and ended:
            return Look([*events, event("end", {"state": state, "reason": reason})], over=True)
        if not ended and (state, reason) != self._state:
            self._state = (state, reason)
            events.insert(0, event("state", {"state": state, "reason": reason}))
        return Look(events, more=page.more)
