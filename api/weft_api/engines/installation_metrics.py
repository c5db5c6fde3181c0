"""Prometheus metrics of the whole installation: jobs, queues and engines, as Postgres has them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from weft_api.engines.load import loads
from weft_core.lifecycle.states import JobState
from weft_core.store.counts import by_state
from weft_core.store.database import Database
from weft_core.store.models import EngineStatus, Job

_UNSEEN = timedelta(minutes=2)  # workers observe each engine about every ten seconds


class InstallationMetrics(Collector):
    """Counts at each scrape. Every API process answers the same numbers: take their maximum, not their sum."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return _families().values()  # without this method, register() would call collect()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families = _families()
        try:
            with self._database.transaction() as session:
                _count_jobs(session, families)
                _look_at_engines(session, families)
        except SQLAlchemyError:
            return  # the metrics of the process are still answered
        yield from families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    families = (
        GaugeMetricFamily("weft_jobs", "Jobs by state; more than 1,000 are estimated.", labels=["state"]),
        GaugeMetricFamily("weft_queue_length", "Jobs that wait for an engine.", labels=["engine", "state"]),
        GaugeMetricFamily("weft_queue_oldest_seconds", "For how long the oldest has been queued.", labels=["engine"]),
        GaugeMetricFamily("weft_engine_up", "Whether an engine answers its workers.", labels=["engine"]),
        GaugeMetricFamily("weft_engine_capacity", "What its nodes have.", labels=["engine", "resource"]),
        GaugeMetricFamily("weft_engine_used", "What open attempts hold of it.", labels=["engine", "resource"]),
    )
    return {family.name: family for family in families}


def _count_jobs(session: Session, families: dict[str, GaugeMetricFamily]) -> None:
    """Counts the jobs of all projects, so not through a Scope."""
    for state, jobs in by_state(session).items():
        families["weft_jobs"].add_metric([state], jobs)
    waits = (JobState.QUEUED.value, JobState.PENDING.value)
    engines = session.scalars(select(EngineStatus.name)).all()
    age = func.extract("epoch", func.now() - func.min(Job.state_since))
    query = select(Job.engine, Job.state, func.count(), age).where(Job.state.in_(waits), Job.predecessors == 0)
    waiting = {
        (engine, state): (n, old) for engine, state, n, old in session.execute(query.group_by(Job.engine, Job.state))
    }
    for engine in sorted({*engines, *(engine for engine, _ in waiting)}):
        for wait in waits:
            families["weft_queue_length"].add_metric([engine, wait], waiting.get((engine, wait), (0, 0))[0])
        oldest = waiting.get((engine, JobState.QUEUED.value), (0, 0))[1]
        families["weft_queue_oldest_seconds"].add_metric([engine], float(oldest))


def _look_at_engines(session: Session, families: dict[str, GaugeMetricFamily]) -> None:
    held = loads(session)
    recent = EngineStatus.seen_at > func.now() - _UNSEEN
    for row, seen in session.execute(select(EngineStatus, recent)):
        up = bool(seen) and row.unreachable_since is None
        families["weft_engine_up"].add_metric([row.name], float(up))
        for resource in ("cpus", "gpus", "memory"):
            there = float((row.capacity or {}).get(resource) or 0)
            used = float(getattr(held[row.name].used, resource)) if row.name in held else 0.0
            families["weft_engine_capacity"].add_metric([row.name, resource], there)
            families["weft_engine_used"].add_metric([row.name, resource], used)
