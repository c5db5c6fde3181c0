"""What the measured pages show: a project of many jobs, of which one has a long log, and two have many points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from tests.api.conftest import Attempted
from tests.many_jobs import fill

from benchmarks import metrics
from benchmarks.logs import tail
from benchmarks.logs.service import Service


@dataclass(frozen=True)
class Filled:
    jobs: int
    log: str
    """The job with the log."""
    lines: int
    chart: str
    """The job with all points in one series."""
    charts: str
    """The one with as many in all its series together."""
    series: int


def filled(service: Service, jobs: int, lines: int, points: int, series: int, say: Callable[[str], None]) -> Filled:
    say(f"writes {jobs:,} jobs")
    url = service.settings.database_url.get_secret_value().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        fill(connection, service.person.project_id, jobs - 3, others=0)  # those below are jobs, too
        connection.execute("vacuum analyze")
    say(f"writes {lines:,} lines")
    log = service.attempt(2)
    written = tail.write(service, log, lines)
    service.end(log)
    say(f"reports {points:,} points in one series")
    chart = _reported(service, points, 1)
    say(f"reports {points:,} points in {series} series")
    charts = _reported(service, points, series)
    return Filled(jobs, log.job_id, written, chart.job_id, charts.job_id, series)


def _reported(service: Service, points: int, series: int) -> Attempted:
    attempt = service.attempt(1)
    (agent,) = attempt.agents
    agent.http.base_url = service.apis[0].url
    metrics.send(agent, points // series, series)
    service.end(attempt)
    return attempt
