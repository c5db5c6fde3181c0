"""Delivers notifications, and acts on rules that the API has found to hold. Runs beside the sweeper.

A delivery is claimed, sent outside any transaction, and written back. A worker that dies in between has sent it or not:
another one sends it again after :data:`_CLAIM`, with the same id. So each notification arrives at least once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import structlog
from sqlalchemy import CTE, ColumnElement, func, select, update
from sqlalchemy.orm import Session

from weft_core.manifest import Notify
from weft_core.notifications import Notification, event_id
from weft_core.store.models import Delivery, Event, Job, Project, RuleFiring, Secret
from weft_core.store.rules import act_on_firings
from weft_core.store.scope import Scope
from weft_workers.context import Context
from weft_workers.sending import Sender, Sent

log = structlog.get_logger(__name__)

_THREADS = 16
_PER_PROJECT = 4
"""Tries at the same time, in one worker. A project with slow receivers leaves room for the others."""
_CLAIM = timedelta(seconds=120)
"""After this, a try whose worker has died is repeated. A try takes a few seconds (:mod:`weft_workers.sending`)."""
_FIRST, _LONGEST = 10.0, 3600.0
"""Seconds between two tries: doubled each time."""


@dataclass(frozen=True)
class Task:
    """A claimed delivery."""

    id: str
    project_id: str
    tries: int
    left: float
    """Seconds in which it may be tried again."""
    target: Notify
    secret: bytes | None
    """Encrypted."""
    notification: Notification


class Deliverer:
    """Sends what is due, some of it at the same time."""

    def __init__(self, context: Context, sender: Sender | None = None) -> None:
        self._context = context
        self._sender = sender or Sender(context.settings, context.box)
        self._changed = threading.Condition()
        self._under_way: Counter[str] = Counter()
        """Tries, by project."""

    def run_due(self) -> None:
        """Act on the rules that have fired, and begin the tries that are due."""
        self.act()
        for task in self.claim():
            # Nothing waits for the end of such a thread: a try that ends with this process is repeated.
            threading.Thread(target=self._deliver, args=(task,), daemon=True).start()

    def act(self) -> None:
        """Act on the rules that have fired."""
        open_ = select(RuleFiring.job_id).where(RuleFiring.acted_at.is_(None)).distinct().limit(100)
        with self._context.database.transaction() as session:
            jobs = session.scalars(open_).all()
        for job_id in jobs:
            with self._context.database.transaction() as session:
                halted = act_on_firings(session, job_id)
            if halted:
                self._context.wake.job(job_id)
            else:
                self._context.wake.changed(job_id)

    def claim(self) -> list[Task]:
        """Claim the deliveries that are due, as far as there is room for them. They count as under way."""
        with self._changed:
            room = _THREADS - self._under_way.total()
            full = [project for project, number in self._under_way.items() if number >= _PER_PROJECT]
        if room <= 0:
            return []
        with self._context.database.transaction() as session:
            rows = session.scalars(
                update(Delivery)
                .where(Delivery.id == _due(full, room).c.id)
                .values(tries=Delivery.tries + 1, tried_at=func.now(), next_try_at=func.now() + _CLAIM)
                .returning(Delivery)
                .execution_options(synchronize_session=False)
            ).all()
            tasks = [self._task(session, row) for row in rows]
        with self._changed:
            self._under_way.update(task.project_id for task in tasks)
        return tasks

    def _task(self, session: Session, row: Delivery) -> Task:
        job, event = session.get_one(Job, row.job_id), session.get_one(Event, row.event_id)
        target = Notify.model_validate(job.manifest["notify"][row.target])
        secret = None
        if target.secret:
            kept = Scope(session, row.project_id).find(Secret, Secret.name == target.secret, Secret.job_id.is_(None))
            secret = kept.ciphertext if kept else None
        age = session.scalars(select(func.extract("epoch", func.now() - Delivery.queued_at)).where(_is(row.id))).one()
        notification = Notification(
            id=event_id(job.id, event.id),
            at=event.created_at,
            message=event.message,
            job_id=job.id,
            job_name=job.name,
            project=session.get_one(Project, job.project_id).name,
            url=f"{self._context.settings.api.public_url.rstrip('/')}/jobs/{job.id}",
            attempt=event.attempt,
            labels=job.labels,
            state=event.state,
            previous_state=event.data.get("from"),
            rule={key: event.data[key] for key in ("when", "then")} if event.kind == "rule" else None,
        )
        left = self._context.settings.notify.retry_seconds - float(age)
        return Task(row.id, row.project_id, row.tries, left, target, secret, notification)

    def _deliver(self, task: Task) -> None:
        try:
            self.finish(task, self._sender.send(task.target, task.secret, task.notification))
        except Exception:  # it is tried again when the claim is over
            log.exception("a notification could not be handled", delivery=task.id)
        finally:
            with self._changed:
                self._under_way -= Counter([task.project_id])
                self._changed.notify_all()

    def finish(self, task: Task, sent: Sent) -> None:
        """Record the result of a try. A replay that was requested meanwhile stays due."""
        values: dict[str, object] = {"status": sent.status, "next_try_at": None}
        wait = max(backoff(task.tries), sent.retry_after)
        if sent.delivered:
            values["delivered_at"] = func.now()
        elif wait > task.left:
            values["failed_at"] = func.now()
        else:
            values["next_try_at"] = func.now() + timedelta(seconds=wait)
        with self._context.database.transaction() as session:
            session.execute(update(Delivery).where(_is(task.id), Delivery.tries == task.tries).values(**values))
        log.info("notification", delivery=task.id, tries=task.tries, status=sent.status, detail=sent.detail)

    def settle(self, seconds: float) -> bool:
        """Wait so long for the tries that are under way. Returns whether they are over."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way.total(), seconds)


def backoff(tries: int) -> float:
    """Seconds until the next try after so many."""
    usual = min(_LONGEST, _FIRST * 2.0 ** min(tries - 1, 20))
    return usual * random.uniform(0.75, 1.25)  # noqa: S311 - spreads tries, hides nothing


def _due(full: list[str], room: int) -> CTE:
    """The ids of due deliveries, with those first that were tried least, and only some of each project."""
    order = (Delivery.tries, Delivery.next_try_at, Delivery.id)
    due = (Delivery.next_try_at <= func.now()) & Delivery.project_id.not_in(full)
    place = func.row_number().over(partition_by=Delivery.project_id, order_by=order).label("place")
    ranked = select(Delivery.id, place).where(due).subquery()
    fair = select(ranked.c.id).where(ranked.c.place <= _PER_PROJECT)
    # The rows that are locked are checked again: another worker may just have claimed them.
    chosen = select(Delivery.id).where(Delivery.id.in_(fair), due).order_by(*order).limit(room)
    return chosen.with_for_update(skip_locked=True).cte()


def _is(delivery_id: str) -> ColumnElement[bool]:
    return Delivery.id == delivery_id
