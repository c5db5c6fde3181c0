"""More learners for running elastic attempts, from the room that no job waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import func, select

from weft_core.engine import Capacity, EngineUnreachable, Preparation
from weft_core.lifecycle.elastic import cooldown
from weft_core.lifecycle.states import Desired
from weft_core.lifecycle.view import View
from weft_core.store.blames import nodes_to_avoid, without_nodes
from weft_core.store.jobs import record_event
from weft_core.store.models import Attempt, Job, Learner, Queue
from weft_workers.admission import binding, more
from weft_workers.context import Context
from weft_workers.lease import Lease, take
from weft_workers.observing import ObservedEngine
from weft_workers.reconcile.admit import lock
from weft_workers.reconcile.planning import make_plan, read_allowances, read_running
from weft_workers.reconcile.preparing import prepare
from weft_workers.rooms import Request
from weft_workers.waiting import read_placement, read_resources

GROW_POLL, NEXT_GROW = 10.0, 2.0
"""An elastic job that could have more learners checks for room this often, and continues with its other steps."""


def grow(context: Context, lease: Lease, view: View) -> bool:
    """Give a running elastic attempt as many more learners as fit and are allowed, unless another job waits for room.

    Returns whether the job is due at once, as there are some to be launched.
    """
    attempt, elastic = view.open, view.job.elastic
    assert attempt is not None
    assert elastic is not None
    engine = context.engine(view.job.engine)
    capacity, unready = _observe(context, engine)
    with context.database.transaction() as session:
        place: tuple[str, ...] = ()
        if capacity is not None and not capacity.queue and engine.grows_runs:
            lock(session, engine)
            capacity = without_nodes(capacity, nodes_to_avoid(session, context.settings, engine.name))
            decided = make_plan(session, context, engine.name, capacity, view.now, unready).plan
            mine = view.job.project_id
            of_no_concern = {job_id for job_id, project in decided.held_back.items() if project != mine}
            if not (decided.places or decided.waiting.keys() - of_no_concern):
                each = read_resources(view.job.manifest["resources"])
                placement = read_placement(context.settings, view.job.manifest.get("profile"))
                user = session.get_one(Job, view.job.id).user_id
                request = Request(view.job.id, 0, each, placement, project=mine, user=user)
                limits = binding(read_allowances(session, [request])[0], request)
                most = elastic.max - len(view.members)
                wanted = min((limit.learners(each, most, running=True) for limit in limits), default=most)
                running = read_running(session, context.settings, engine.name, view.now)
                place = more(capacity, running, replace(request, learners=wanted)) if wanted else ()
        taken = take(session, lease)
        row = session.get_one(Attempt, attempt.id)
        if not place or taken.asked is not None or taken.job.desired != Desired.RUNNING:
            row.grow_at = func.now() + timedelta(seconds=GROW_POLL)
            return taken.release(NEXT_GROW)
        first = len(view.learners)
        numbers = range(first, first + len(place))
        session.add_all(Learner(attempt_id=attempt.id, rank=rank, project_id=view.job.project_id) for rank in numbers)
        row.resources = {
            **row.resources, "learners": numbers.stop, "nodes": [*row.resources.get("nodes", ()), *place]
        }  # fmt: skip
        row.grow_at = func.now() + timedelta(seconds=cooldown(view))
        who = ", ".join(str(rank + 1) for rank in numbers)
        words = f"there is room for more: starting learner{'s' if len(place) > 1 else ''} {who}"
        record_event(session, taken.job, "elastic", words, data={"learners": [rank + 1 for rank in numbers]})
        taken.release(0)
    context.wake.changed(view.job.id)
    return True


def _observe(context: Context, engine: ObservedEngine) -> tuple[Capacity | None, Mapping[str, Preparation]]:
    """The engine's capacity, and the jobs that can't start yet. None: it does not answer, or the last pass has found
    jobs that wait for its room, so that there is no need to plan the queue."""
    with context.database.transaction() as session:
        if session.scalar(select(Queue.wanted).where(Queue.engine == engine.name)):
            return None, {}
    try:
        capacity = engine.capacity(fresh=True)
        return capacity, prepare(context, engine, capacity).unready
    except EngineUnreachable:
        return None, {}
