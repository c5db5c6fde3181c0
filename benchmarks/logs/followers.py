"""From the moment a line is due at a learner until each of many followers has it, and what they cost the API and
Postgres.

All calls go to one API process. Postgres logs its statements in a few seconds of their own, in which no lag counts.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, pairwise

import psutil
from psycopg import sql
from tests.api.conftest import Person

from benchmarks.logs.service import Crowd, Learners, Service
from benchmarks.table import show

SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", "20"))
GOAL = 1.0
_CASES = os.environ.get("WEFT_BENCH_FOLLOWERS", "1x10/1,1x1000/1,200x0/5,200x1/5,200x5/5,200x5/1")
"""Jobs, followers of each, and seconds between two lines of a job, which has one learner."""
_WARM = 2.0
_COUNTED = 5.0
"""Seconds in which statements are counted."""
_PEOPLE = 10
"""Users who follow; a token may have 1,000 streams."""
_STATEMENT = re.compile(rb"LOG:  (statement|execute )")


@dataclass
class _Measured:
    ages: list[float]
    """In seconds."""
    lines: int
    got: int
    lost: int
    doubled: int
    """Or out of order."""
    cores: float
    statements: float
    """A second."""


def measure(service: Service) -> None:
    people = [service.person] + [
        service.remote.person("viewer", project_id=service.person.project_id) for _ in range(_PEOPLE - 1)
    ]
    rows = []
    fewest: dict[tuple[int, float], float] = {}
    for case in _CASES.split(","):
        numbers, _, every = case.partition("/")
        jobs, followers = (int(number) for number in numbers.split("x"))
        found = _follow(service, people, jobs, followers, float(every))
        least = fewest.setdefault((jobs, float(every)), found.statements)
        rows.append(
            [
                f"{jobs:,} × {followers:,}, {every} s",
                f"{found.got:,} of {found.lines * followers:,}",
                f"{found.lost}; {found.doubled}",
                *(f"{_part(found.ages, share) * 1000:.0f} ms" if found.ages else "" for share in (0.5, 0.99, 1.0)),
                f"{found.cores:.2f}",
                f"{found.statements:,.0f}",
                f"{found.statements / least:.2f}",
            ]
        )
    show(
        f"Followers of jobs with one learner: {SECONDS:g} s, one API process; goal: p99 < {GOAL * 1000:.0f} ms, "
        "nothing lost or doubled, no query per follower",
        [
            "jobs × followers of each, a line every",
            "lines",
            "lost; doubled",
            "p50",
            "p99",
            "most",
            "API's cores",
            "statements/s",
            "ratio",
        ],
        rows,
    )


def _follow(service: Service, people: list[Person], jobs: int, followers: int, every: float) -> _Measured:
    attempts = [service.attempt(1) for _ in range(jobs)]
    api = service.apis[0]
    learners = Learners(
        [api.url], [(attempt.token, 0) for attempt in attempts], seconds=_WARM + SECONDS + _COUNTED, every=every
    )
    tokens = cycle(person.token for person in people)
    crowd = Crowd(api.url, [(next(tokens), attempt.job_id) for attempt in attempts for _ in range(followers)])
    learners.go()
    time.sleep(_WARM)
    process = psutil.Process(api.pid)
    before, begun = process.cpu_times(), time.monotonic()
    time.sleep(SECONDS)
    after, ended = process.cpu_times(), time.monotonic()
    with _statements(service) as counted:
        time.sleep(_COUNTED)
    written = learners.result()
    for attempt in attempts:
        service.end(attempt)
    crowd.go()
    told = crowd.result()
    ages = []
    got = lost = doubled = 0
    for number, follower in enumerate(told):
        job = number // followers
        numbers: list[int] = follower["numbers"]
        got += len(numbers)
        lost += len(set(range(written[job])).difference(numbers))
        doubled += sum(later <= earlier for earlier, later in pairwise(numbers))
        if not follower["ended"]:
            raise RuntimeError(f"a follower of job {attempts[job].job_id} was cut off")
        ages += [age / 1e9 for due, age in follower["ages"] if begun <= due / 1e9 < ended]
    return _Measured(
        sorted(ages),
        sum(written),
        got,
        lost,
        doubled,
        (after.user + after.system - before.user - before.system) / (ended - begun),
        counted[0] / _COUNTED,
    )


@contextmanager
def _statements(service: Service) -> Iterator[list[int]]:
    """The number of statements that Postgres executes meanwhile, known at the end."""
    postgres = service.servers.postgres
    found: list[int] = []

    def log(which: str) -> None:
        with postgres.connect() as connection:
            connection.execute(sql.SQL("alter system set log_statement = {}").format(which))
            connection.execute("select pg_reload_conf()")

    with postgres.connect() as connection:
        connection.execute("alter system set log_parameter_max_length = 0")
    start = postgres.log.stat().st_size
    log("all")
    try:
        yield found
    finally:
        log("none")
        with postgres.log.open("rb") as file:
            file.seek(start)
            found.append(sum(bool(_STATEMENT.search(line)) for line in file))


def _part(ages: list[float], share: float) -> float:
    """That share of the lines came sooner."""
    return ages[int(share * (len(ages) - 1))]
