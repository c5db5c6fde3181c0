"""The outbox: which targets of a manifest an event is for. Each call runs in the transaction that causes the event."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func
from sqlalchemy.orm import Session

from weft_core.ids import new_id
from weft_core.store.models import Delivery, Event, Job


def queue_state(session: Session, job: Job, event: Event) -> None:
    """Queue an event of a new state for the targets that ask for this state."""
    targets = job.manifest.get("notify") or ()
    queue(session, event, [index for index, target in enumerate(targets) if event.state in target["on"]])


def queue(session: Session, event: Event, targets: Iterable[int]) -> None:
    """Queue an event for these targets of its job's manifest."""
    targets = list(targets)
    if not targets:
        return
    session.flush()  # gives the event its id
    for index in targets:
        session.add(
            Delivery(
                id=new_id("dlv"), project_id=event.project_id, job_id=event.job_id, event_id=event.id, target=index
            )
        )


def replay(delivery: Delivery) -> None:
    """Have a delivery sent again, with the id of its event, as if it had been queued now."""
    delivery.queued_at = delivery.next_try_at = func.now()
    delivery.tries, delivery.delivered_at, delivery.failed_at = 0, None, None
