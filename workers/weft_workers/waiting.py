"""The jobs that wait for an engine: which of them are considered, and what they ask for."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, ColumnElement, Subquery, Text, any_, bindparam, func, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from weft_core.launch import Placement, Resources
from weft_core.settings import Settings
from weft_core.store.budgets import Need, need
from weft_core.store.models import Job, Project
from weft_core.store.queue import waits
from weft_workers.rooms import Request

CONSIDERED = 20_000
"""How many waiting jobs are considered; the others are behind them in the queue."""
_ORDER = (Job.priority.desc(), Job.created_at, Job.id)


class Waiting(NamedTuple):
    """A job that waits, without its manifest: Postgres takes much longer to read that."""

    id: str
    project_id: str
    user_id: str
    priority: int
    created_at: datetime
    attempt: int
    failures: int
    place: int | None
    reason: str
    condition: str | None
    next_step_at: datetime | None
    keepalive_until: datetime | None
    budget_id: str | None


_COLUMNS = tuple(getattr(Job, name) for name in Waiting._fields)


def among(column: InstrumentedAttribute[str], ids: Collection[str]) -> ColumnElement[bool]:
    """``column in (…)`` for thousands of ids: one parameter, and not one for each."""
    return column == any_(bindparam(None, list(ids), ARRAY(Text)))


def considered(engine: str) -> Subquery:
    """These jobs: the first of each project, then the second of each, and so on. One project's jobs, however many,
    never push out another's."""
    own = (
        select(*_COLUMNS, func.row_number().over(order_by=_ORDER).label("turn"))
        .where(Job.engine == engine, Job.project_id == Project.id, waits())
        .order_by(*_ORDER)
        .limit(CONSIDERED)
        .lateral("own")
    )
    first = select(own).select_from(Project).join(own, true())
    return first.order_by(own.c.turn, own.c.created_at, own.c.id).limit(CONSIDERED).subquery("considered")


def read_queue(session: Session, engine: str) -> list[Waiting]:
    """The jobs that are considered, by priority and age."""
    found = considered(engine)
    rows = session.execute(select(*(found.c[name] for name in Waiting._fields)))
    return sorted(map(Waiting._make, rows), key=lambda row: (-row.priority, row.created_at, row.id))


class Requests:
    """The requests of waiting jobs, remembered by their ids, as a manifest never changes.

    Equal resources and placements are the same object, by which a plan knows jobs of one kind.
    """

    def __init__(self) -> None:
        self._by_engine: dict[str, dict[str, Request]] = {}
        self._each: dict[str, Resources] = {}
        self._placements: dict[str | None, Placement] = {}
        self._images: dict[str, dict[str, str]] = {}

    def read(
        self, session: Session, settings: Settings, engine: str, queue: Sequence[Waiting]
    ) -> Mapping[str, Request]:
        """The requests of the jobs of a queue, by id; those of all other jobs of the engine are forgotten."""
        known = self._by_engine.get(engine, {})
        found = {
            row.id: request
            for row in queue
            if (request := known.get(row.id)) is not None
            and (request.priority, request.budget) == (row.priority, row.budget_id)
        }
        rows = {row.id: row for row in queue if row.id not in found}
        manifest = Job.manifest
        wanted = (
            select(Job.id, Job.learners, manifest["resources"], manifest["profile"].astext, manifest["elastic"])
            .add_columns(manifest["max_runtime_seconds"].astext)
            .where(among(Job.id, rows))
        )
        for job_id, learners, resources, profile, elastic, limit in session.execute(wanted) if rows else ():
            row = rows[job_id]
            found[job_id] = Request(
                job_id,
                learners,
                self._resources(resources),
                self._placement(settings, profile),
                elastic["min"] if elastic else None,
                row.project_id,
                row.user_id,
                row.priority,
                row.budget_id,
                _need(row, int(resources["gpus"]) * learners, limit, settings),
            )
        self._by_engine[engine] = found
        return found

    def images(self, session: Session, engine: str) -> Mapping[str, str]:
        """The images of the jobs that wait for an engine, by the job's id, by priority and age."""
        known = self._images.get(engine, {})
        queue = list(session.scalars(select(Job.id).where(Job.engine == engine, waits()).order_by(*_ORDER)))
        new = set(queue) - known.keys()
        wanted = select(Job.id, Job.manifest["framework"]["image"].astext).where(among(Job.id, new))
        known = known | ({job_id: str(image) for job_id, image in session.execute(wanted)} if new else {})
        found = self._images[engine] = {job_id: known[job_id] for job_id in queue if job_id in known}
        return found

    def _resources(self, manifest: Mapping[str, Any]) -> Resources:
        if len(self._each) > CONSIDERED:
            self._each.clear()
        return self._each.setdefault(json.dumps(manifest, sort_keys=True), read_resources(manifest))

    def _placement(self, settings: Settings, profile: str | None) -> Placement:
        now = read_placement(settings, profile)
        if self._placements.get(profile) != now:
            self._placements[profile] = now
        return self._placements[profile]


def _need(row: Waiting, gpus: int, max_runtime: str | None, settings: Settings) -> Need | None:
    """What a job reserves of its budget; only a job with a time limit is accepted by a budget."""
    if row.budget_id is None or not gpus:
        return None
    return need(gpus, float(max_runtime or 0), settings.timings.grace)


def read_resources(manifest: Mapping[str, Any]) -> Resources:
    """A manifest's resources of one learner."""
    return Resources(
        cpus=float(manifest["cpus"]),
        gpus=int(manifest["gpus"]),
        memory=int(manifest["memory"]),
        storage=manifest.get("storage"),
        gpu_type=manifest.get("gpu_type"),
        extra=manifest.get("extra") or {},
    )


def read_placement(settings: Settings, profile: str | None) -> Placement:
    """Where a job's profile lets its learners run; one that is gone from the settings: anywhere."""
    found = settings.profiles.get(profile or "")
    if found is None:
        return Placement()
    return Placement(
        node_selector=found.node_selector,
        tolerations=tuple(found.tolerations),
        affinity=found.affinity,
        priority_class=found.priority_class,
        image_pull_secrets=tuple(found.image_pull_secrets),
    )
