"""The notes for waiting jobs: their places in the queue and the reasons, written for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ARRAY, DateTime, Integer, Text, bindparam, column, func, insert, not_, or_, select, update
from sqlalchemy.orm import Session

from weft_core.store.models import Event, Job
from weft_core.store.queue import waits
from weft_core.words import count
from weft_workers.waiting import CONSIDERED, Waiting, among, considered

AGAIN = 10.0
"""Seconds between two times at which all places and numbers in reasons are written, if there are many. One job's end
changes those of all jobs behind it."""
_FEW, _FIRST = 500, 100
"""How many are written at once, however often they change: all of a short queue; the first of a long one."""


_NO_NUMBERS = str.maketrans("", "", "0123456789.")


class Note(NamedTuple):
    """The place and the reason for a waiting job's row."""

    row: Waiting
    reason: str
    place: int | None
    next_step_at: datetime | None
    """When it is due by itself: at the end of its pause, or when its client must have given a sign of life."""
    kind: str = "waiting"
    """The kind of the event for a new reason."""

    @property
    def changed(self) -> bool:
        row = self.row
        return (row.reason, row.place, row.condition, row.next_step_at) != (
            self.reason, self.place, None, self.next_step_at
        )  # fmt: skip

    @property
    def told(self) -> bool:
        """Whether the reason is a new one, and not the same with other numbers."""
        if self.reason == self.row.reason:
            return False
        return self.kind != "waiting" or _kind(self.row.reason) != _kind(self.reason)

    @property
    def urgent(self) -> bool:
        return self.row.place is None or self.row.next_step_at != self.next_step_at or self.told


def note_waiting(
    session: Session, notes: Sequence[Note], last: datetime | None, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Write what has changed.

    Args:
        notes: of all jobs that wait, in the order of the queue.
        last: when all were last written.

    Returns:
        When all were last written, and when those that were left out are due; None: none was.
    """
    changed = [note for note in notes if note.changed]
    again = None if last is None else last + timedelta(seconds=AGAIN)
    if len(changed) > _FEW and again is not None and again > now:
        first = {note.row.id for note in notes[:_FIRST]}
        _write(session, [note for note in changed if note.row.id in first or note.urgent])
        return last, again
    _write(session, changed)
    return (now if changed else last), None


def _write(session: Session, notes: Sequence[Note]) -> None:
    if not notes:
        return
    ids = [note.row.id for note in notes]
    # The holder of a row is changing the job. The next pass writes its note.
    free = or_(Job.lease_until.is_(None), Job.lease_until < func.now())
    mine = select(Job.id).where(among(Job.id, ids), waits(), free).with_for_update(skip_locked=True).cte("mine")
    new = (
        func.unnest(
            bindparam(None, ids, ARRAY(Text)),
            bindparam(None, [note.place for note in notes], ARRAY(Integer)),
            bindparam(None, [note.reason for note in notes], ARRAY(Text)),
            bindparam(None, [note.next_step_at for note in notes], ARRAY(DateTime(timezone=True))),
        )
        .table_valued(
            column("id", Text), column("place", Integer), column("reason", Text), column("at", DateTime(True))
        )
        .render_derived()
    )
    written = session.execute(
        update(Job)
        .where(Job.id == mine.c.id, Job.id == new.c.id)
        .values(place=new.c.place, reason=new.c.reason, next_step_at=new.c["at"], condition=None)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    )
    found = set(written.scalars())
    events = [
        {
            "project_id": note.row.project_id,
            "job_id": note.row.id,
            "attempt": note.row.attempt or None,
            "kind": note.kind,
            "message": note.reason,
        }
        for note in notes
        if note.row.id in found and note.told
    ]
    if events:
        session.execute(insert(Event), events)


def note_others(session: Session, engine: str) -> None:
    """Write the reason of the jobs behind those that are considered."""
    reason = f"queued behind {count(CONSIDERED, 'job')} or more"
    outdated = or_(Job.reason != reason, Job.place.is_not(None), Job.next_step_at.is_distinct_from(Job.keepalive_until))
    ahead = Job.id.in_(select(considered(engine).c.id))
    session.execute(
        update(Job)
        .where(Job.engine == engine, waits(), outdated, not_(ahead))
        .values(reason=reason, place=None, next_step_at=Job.keepalive_until)
        .execution_options(synchronize_session=False)
    )


def _kind(reason: str) -> str:
    return reason.translate(_NO_NUMBERS).replace("jobs", "job")
