"""The delivery log of a job, and replay."""

from __future__ import annotations

from collections.abc import Iterable

from weft_api.access.lookups import find_job
from weft_api.deliveries.schemas import DeliveryView
from weft_api.http.idempotency import Once
from weft_api.http.problems import not_found
from weft_core.manifest import Notify
from weft_core.notifications import event_id, shown_target
from weft_core.store.models import Delivery, Event, Job
from weft_core.store.notifications import replay
from weft_core.store.scope import Scope


def list_deliveries(scope: Scope, job_id: str, limit: int) -> list[DeliveryView]:
    """The job's newest deliveries. Raises Problem not_found."""
    job = find_job(scope, job_id)
    query = scope.select(Delivery, Delivery.job_id == job.id).order_by(Delivery.event_id.desc(), Delivery.target)
    return _views(scope, job, scope.all(query.limit(limit)))


def replay_delivery(scope: Scope, job_id: str, delivery_id: str, once: Once) -> DeliveryView:
    """Have a delivery sent again. Raises Problem not_found."""
    job = find_job(scope, job_id)
    delivery = None
    if delivery_id.isascii() and "\0" not in delivery_id:
        delivery = scope.find(Delivery, Delivery.job_id == job.id, Delivery.id == delivery_id, lock=True)
    if delivery is None:
        raise not_found("delivery", delivery_id[:100])
    if once.seen(scope) is None:
        replay(delivery)
    once.claim(scope, delivery_id)
    scope.session.flush()
    scope.session.refresh(delivery)
    return _views(scope, job, [delivery])[0]


def _views(scope: Scope, job: Job, deliveries: Iterable[Delivery]) -> list[DeliveryView]:
    deliveries = list(deliveries)
    found = scope.all(scope.select(Event, Event.id.in_({delivery.event_id for delivery in deliveries})))
    events = {event.id: event for event in found}
    targets = [Notify.model_validate(target) for target in job.manifest.get("notify", ())]
    return [_view(delivery, events[delivery.event_id], targets[delivery.target]) for delivery in deliveries]


def _view(row: Delivery, event: Event, target: Notify) -> DeliveryView:
    return DeliveryView(
        id=row.id,
        event_id=event_id(row.job_id, event.id),
        event=event.state or event.kind,
        message=event.message,
        target=shown_target(target),
        format="email" if target.email else target.format,
        state="delivered" if row.delivered_at else "failed" if row.failed_at else "waiting",
        tries=row.tries,
        status=row.status,
        queued_at=row.queued_at,
        tried_at=row.tried_at,
        delivered_at=row.delivered_at,
        next_try_at=row.next_try_at,
    )
