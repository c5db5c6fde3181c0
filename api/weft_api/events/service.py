"""Reading and following a job's events."""

from __future__ import annotations

from sqlalchemy import select
from sse_starlette import ServerSentEvent

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.events.schemas import EventView
from weft_api.streaming.following import Poll, event
from weft_core.lifecycle.states import TERMINAL
from weft_core.store.models import Event, Job, User
from weft_core.store.scope import Scope

_PAGE = 200


def read_events(scope: Scope, job_id: str, after: int, limit: int) -> list[EventView]:
    """Up to ``limit`` events of the job with an id greater than ``after``, oldest first.

    A job's events are written under its row's lock, so an id that was read is never followed by a smaller one.
    """
    query = scope.select(Event, Event.job_id == job_id, Event.id > after).order_by(Event.id).limit(limit)
    rows = scope.all(query)
    users = select(User.id, User.name).where(User.id.in_({row.user_id for row in rows if row.user_id}))
    names = dict(scope.session.execute(users).all())
    return [
        EventView(
            id=row.id,
            at=row.created_at,
            kind=row.kind,
            state=row.state,
            attempt=row.attempt,
            message=row.message,
            user=names.get(row.user_id) if row.user_id else None,
            data=row.data,
        )
        for row in rows
    ]


class EventFollower:
    """Keeps where one follower stands. ``poll`` is called by one thread at a time."""

    def __init__(self, context: Context, who: Principal, job_id: str, after: int) -> None:
        self._context = context
        self._who = who
        self._job_id = job_id
        self._after = after

    def poll(self) -> Poll[ServerSentEvent]:
        with self._context.database.transaction() as session:
            # The state before the events: when it is terminal now, the events read after are all.
            scope = self._who.scope(session)
            own = scope.select(Job, Job.id == self._job_id).with_only_columns(Job.state, Job.reason)
            row = session.execute(own).one_or_none()
            found = read_events(scope, self._job_id, self._after, _PAGE)
        events = [event("event", view, view.id) for view in found]
        if found:
            self._after = found[-1].id
        state, reason = row if row else ("DELETED", "the job has been deleted")
        more = len(found) == _PAGE
        if not more and (row is None or state in TERMINAL):
            return Poll([*events, event("end", {"state": state, "reason": reason})], over=True)
        return Poll(events, more=more)
