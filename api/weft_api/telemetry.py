"""Prometheus metrics of this process; the numbers of jobs are counted in the store when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from weft_core.lifecycle import JobState
from weft_core.store.database import Database
from weft_core.store.models import Job

_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """A registry of its own, so that several apps can live in one process."""

    def __init__(self, database: Database) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody reads
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "weft_api_request_seconds",
            "Time to answer, by route template.",
            ["method", "route", "status"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.log_lines = Counter("weft_api_log_lines", "Log lines taken in.", registry=self.registry)
        self.log_bytes = Counter("weft_api_log_bytes", "Bytes of log lines taken in.", registry=self.registry)
        self.followers = Gauge("weft_api_followers", "Streams being followed now.", ["stream"], registry=self.registry)
        self.registry.register(_Jobs(database))

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _Jobs(Collector):
    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [_family()]  # without it, registering would already ask the database

    def collect(self) -> Iterable[GaugeMetricFamily]:
        try:
            with self._database.transaction() as session:
                # Of the whole installation, so not through a project's door.
                counted = dict(session.execute(select(Job.state, func.count()).group_by(Job.state)).all())
        except SQLAlchemyError:
            return  # what else there is to tell is still told
        family = _family()
        for state in JobState:
            family.add_metric([state.value], counted.get(state.value, 0))
        yield family


def _family() -> GaugeMetricFamily:
    return GaugeMetricFamily("weft_jobs", "Jobs by state.", labels=["state"])
