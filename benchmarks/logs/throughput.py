"""Lines a second that one API process takes in, and two; beside plain inserts of the same bytes into Postgres."""

from __future__ import annotations

import os
import threading
import time

from benchmarks.logs.service import Learners, Service
from benchmarks.table import show
from weft_core.log_archive import pack_times

SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", "20"))
GOAL = 50_000
_LEARNERS = 4
_LINES = 2000
"""In a batch: what an agent sends at most."""


def measure(service: Service) -> None:
    raw = _raw(service)
    rows = [["plain inserts, a batch in each transaction", f"{raw:,.0f}", "1.0", ""]]
    for count in range(1, len(service.apis) + 1):
        # A job each: lines of one job are numbered one batch after the other.
        attempts = [service.attempt(1) for _ in range(_LEARNERS)]
        urls = [api.url for api in service.apis[:count]]
        learners = Learners(urls, [(attempt.token, 0) for attempt in attempts], seconds=SECONDS, flood=_LINES)
        begun = time.monotonic()
        learners.go()
        lines = sum(learners.result())
        rate = lines / (time.monotonic() - begun)
        for attempt in attempts:
            service.end(attempt)
        name = "one API process" if count == 1 else f"{count} API processes"
        rows.append([name, f"{rate:,.0f}", f"{rate / raw:.2f}", f"≥ {GOAL:,}"])
    show(
        f"Sustained lines/s: {_LEARNERS} learners of as many jobs, batches of {_LINES:,} lines of 100 bytes, "
        f"{SECONDS:g} s",
        ["what", "lines/s", "ratio", "goal"],
        rows,
    )


def _raw(service: Service) -> float:
    """Lines a second by as many connections, each with the bytes that Weft would store."""
    database = service.settings.database_url.get_secret_value().partition("?")[0].rpartition("/")[2]
    body = (b"x" * 99 + b"\n") * _LINES
    times = pack_times([int(time.time() * 1000)] * _LINES)
    done = []
    with service.servers.postgres.connect(database) as connection:
        connection.execute("create table raw_chunks (id bigserial primary key, body bytea, times bytea)")

        def insert() -> None:
            count = 0
            with service.servers.postgres.connect(database) as mine:
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:
                    mine.execute("insert into raw_chunks (body, times) values (%b, %b)", (body, times))
                    count += 1
            done.append(count)

        threads = [threading.Thread(target=insert) for _ in range(_LEARNERS)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun
        connection.execute("drop table raw_chunks")
    return sum(done) * _LINES / seconds
