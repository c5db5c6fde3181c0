"""Many jobs that start, or are halted, at the same time: how many of them a second one, two and three sweepers do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import redis
from sqlalchemy import text
from tests.servers import Servers

from benchmarks.queue import workers
from benchmarks.queue.double import SharedDouble
from benchmarks.queue.filling import fill, new_job
from weft_core.store import jobs
from weft_core.store.models import Job
from weft_core.store.scope import Scope
from weft_workers.context import Context, make_context

JOBS = 1000
SWEEPERS = (1, 2, 3)
_PATIENCE = 300.0
_REST = 5.0
"""Seconds before each burst, in which the sweepers come to rest."""
_LAUNCHED = "select count(*) from attempts where launched_at is not null"
_HALTED = "select count(*) from jobs where state = 'HALTED'"


def burst(servers: Servers, folder: Path, sweepers: int) -> list[str]:
    """A row: jobs that start in a second and the processor time of each, and the same of jobs that are halted."""
    redis.Redis.from_url(servers.redis.url).flushall()  # the runs of the row before
    with servers.database_url() as url:
        settings = workers.worker_settings(servers, url, folder)
        context = make_context(settings, "inst-bench", {"local": SharedDouble(JOBS, servers.redis.url)})
        fill(context.database, 0, 0)
        with context.database.transaction() as session:  # no quota holds a job back
            session.execute(text("update projects set quota = '{}', guaranteed = '{}'"))
        postgres = workers.postgres_pid(servers)
        processes = workers.start(settings, 0, JOBS, sweepers, shared=servers.redis.url)
        try:
            time.sleep(_REST)  # their start is not measured
            started = _timed(context, _LAUNCHED, lambda: _submit(context), lambda: workers.used(processes, postgres))
            time.sleep(_REST)
            halted = _timed(context, _HALTED, lambda: _halt(context), lambda: workers.used(processes, postgres))
        finally:
            workers.stop(processes)
        context.close()
    shown = [cell for rate, cost in (started, halted) for cell in (f"{rate:.0f}", f"{1000 * cost:.0f} ms")]
    return [str(sweepers), *shown]


def _timed(context: Context, count: str, begin: Callable[[], None], used: Callable[[], float]) -> tuple[float, float]:
    """Jobs a second, from the first to the last that ``count`` finds, and seconds of processor time for each."""
    before = used()
    begin()
    first, since = 0, time.monotonic()
    while True:
        with context.database.transaction() as session:
            found = int(session.scalar(text(count)) or 0)
        if found and not first:
            first, since = found, time.monotonic()
        if found == JOBS:
            return (JOBS - first) / (time.monotonic() - since), (used() - before) / JOBS
        assert time.monotonic() < since + _PATIENCE, "the burst never ends"
        time.sleep(0.05)


def _submit(context: Context) -> None:
    with context.database.transaction() as session:
        for number in range(JOBS):
            jobs.submit(Scope(session, "prj-0"), new_job(number), [])


def _halt(context: Context) -> None:
    with context.database.transaction() as session:
        for job in session.query(Job):
            jobs.request_halt(session, job)
