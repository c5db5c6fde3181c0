"""Lost and doubled lines while processes are killed: of API, Redis and Postgres, again and again."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import Counter

from benchmarks.logs.service import Learners, Service
from benchmarks.table import show
from weft.models import LogLine

SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", "20")) * 1.5
_LEARNERS = 8
_EVERY = 0.005
"""Seconds between two lines of a learner."""
_PAUSE = 2.0
"""Seconds between two kills, on average."""


def measure(service: Service) -> None:
    attempt = service.attempt(_LEARNERS)
    urls = [api.url for api in service.apis]
    which = [(attempt.token, rank) for rank in range(_LEARNERS)]
    learners = Learners(urls, which, seconds=SECONDS, every=_EVERY)
    followed: list[list[LogLine]] = [[] for _ in service.apis]

    def follow(number: int) -> None:
        log = service.client(number).jobs.follow_logs(attempt.job_id, patience=120)
        followed[number].extend(item for item in log if isinstance(item, LogLine))

    followers = [threading.Thread(target=follow, args=(number,), daemon=True) for number in range(len(urls))]
    for follower in followers:
        follower.start()
    learners.go()
    killed = _kill(service, SECONDS)
    written = learners.result()
    service.end(attempt)
    for follower in followers:
        follower.join(120)
    rows = []
    stored = list(service.client().jobs.logs(attempt.job_id))
    for name, lines in [
        ("stored", stored),
        *((f"follower at API {n}", followed_lines) for n, followed_lines in enumerate(followed, 1)),
    ]:
        lost, doubled, disordered = _faults(lines, written)
        rows.append([name, f"{len(lines):,}", str(lost), str(doubled), str(disordered)])
    show(
        f"Lines that were lost or came twice: {_LEARNERS} learners wrote {sum(written):,} lines while were killed: "
        + ", ".join(f"{name} {count} times" for name, count in sorted(killed.items())),
        ["where", "lines", "lost", "doubled", "out of order"],
        rows,
    )


def _kill(service: Service, seconds: float) -> Counter[str]:
    """kill -9 of one process after the other, each started again at once."""
    killed: Counter[str] = Counter()
    end = time.monotonic() + seconds
    for name in itertools.cycle(("an API process", "an API process", "Redis", "Postgres")):
        time.sleep(random.uniform(0.5, 1.5) * _PAUSE)
        if time.monotonic() > end:
            return killed
        killed[name] += 1
        if name == "an API process":
            api = random.choice(service.apis)
            api.kill()
            api.start()
            continue
        part = service.servers.redis if name == "Redis" else service.servers.postgres
        assert part.process is not None
        part.process.kill()
        part.process.wait()
        part.start()
    raise AssertionError


def _faults(lines: list[LogLine], written: list[int]) -> tuple[int, int, int]:
    """(lost, doubled, out of order), by the numbers that learners gave their lines."""
    found = [(int(rank), int(number)) for rank, number in (line.text.split()[:2] for line in lines)]
    expected = {(rank, number) for rank, count in enumerate(written) for number in range(count)}
    last: dict[int, int] = {}
    disordered = 0
    for rank, number in found:
        disordered += number < last.get(rank, -1)
        last[rank] = number
    return len(expected - set(found)), len(found) - len(set(found)), disordered
