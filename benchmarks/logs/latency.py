"""From the moment a learner writes a line until a follower has it."""

from __future__ import annotations

import os
import re
import threading
import time

import httpx

from benchmarks.logs.service import Learners, Service
from benchmarks.table import show

LEARNERS = [int(number) for number in os.environ.get("WEFT_BENCH_LEARNERS", "1,100,1000").split(",")]
SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", "20"))
EVERY = 1.0
"""Seconds between two lines of a learner."""
_WARM = 2.0
_EMITTED = re.compile(rb'"text": ?"\d+ \d+ (\d+) ')


class Follower(threading.Thread):
    """Follows a job over server-sent events and notes how old each line is when it comes, in seconds."""

    def __init__(self, service: Service, job_id: str) -> None:
        super().__init__(daemon=True)
        self._url = f"{service.apis[-1].url}/api/v1/jobs/{job_id}/logs/follow"
        self._headers = {"Authorization": f"Bearer {service.person.token}"}
        self.follows = threading.Event()
        self.ages: list[tuple[float, float]] = []  # (when it was written, its age)

    def run(self) -> None:
        with httpx.stream("GET", self._url, headers=self._headers, timeout=60) as response:
            rest = b""
            for piece in response.iter_raw():
                now = time.monotonic()
                self.follows.set()
                *events, rest = (rest + piece).split(b"\n\n")
                for event in events:
                    if found := _EMITTED.search(event):
                        emitted = int(found[1]) / 1e9
                        self.ages.append((emitted, now - emitted))


def measure(service: Service) -> None:
    rows = []
    for count in LEARNERS:
        attempt = service.attempt(count)
        urls = [api.url for api in service.apis]
        learners = Learners(urls, [(attempt.token, rank) for rank in range(count)], seconds=SECONDS, every=EVERY)
        follower = Follower(service, attempt.job_id)
        follower.start()
        follower.follows.wait(60)
        begun = time.monotonic()
        learners.go()
        written = sum(learners.result())
        service.end(attempt)
        follower.join(60)
        ages = sorted(age for emitted, age in follower.ages if emitted > begun + _WARM)
        rows.append(
            [
                f"{count:,}",
                f"{len(follower.ages):,} of {written:,}",
                f"{_part(ages, 0.5):.0f} ms",
                f"{_part(ages, 0.99):.0f} ms",
                f"{ages[-1] * 1000:.0f} ms",
                "≤ 150, ≤ 1000 ms" if count == 100 else "",
            ]
        )
    show(
        f"From a learner's line to a follower: one job, a line a second of each learner, {SECONDS:g} s, "
        f"{len(service.apis)} API processes",
        ["learners", "lines", "p50", "p99", "most", "goal (p50, p99)"],
        rows,
    )


def _part(ages: list[float], share: float) -> float:
    """That share of the lines came sooner, in milliseconds."""
    return ages[int(share * (len(ages) - 1))] * 1000
