"""Reads of a long log, while it is in Postgres and after it has been moved to S3."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from sqlalchemy import func, insert, update
from tests.api.conftest import Attempted

from benchmarks.logs.service import Service, room_for
from benchmarks.table import show, spread
from weft_core.log_archive import pack_times
from weft_core.store.models import Attempt, LogChunk, LogCursor
from weft_workers.archiving import Archiver
from weft_workers.context import make_context

SIZE = int(os.environ.get("WEFT_BENCH_LOG_BYTES", 10 << 30))
GOAL = 0.1  # seconds
_LINES = 2000
"""In a chunk."""
_LINE = b"step %9d: loss %.16f accuracy %.16f\n"
_LINE_BYTES = len(_LINE % (0, 0, 0))
_RARE = 50
"""Learner 2 writes one chunk in so many, and none in the second half; a filter has to find those."""
_ROUNDS = 15
_START = 1_700_000_000_000  # ms


def measure(service: Service) -> None:
    # Twice: Postgres writes new data into its log as well.
    if not room_for(3 * SIZE, service.servers.folder):
        print(f"no room on the disk for a log of {SIZE / 2**30:.3g} GiB: set WEFT_BENCH_LOG_BYTES")
        return
    attempt = service.attempt(2)
    lines = write(service, attempt, SIZE // _LINE_BYTES)
    _leave_the_others(service, attempt)
    rows = _reads(service, attempt.job_id, lines, "Postgres")
    service.remote.set_attempt(attempt, ended_at=datetime(2025, 1, 1, tzinfo=UTC), outcome="SUCCEEDED")
    begun = time.perf_counter()
    Archiver(make_context(service.settings, "bench", {})).archive_due()
    moved = time.perf_counter() - begun
    rows += _reads(service, attempt.job_id, lines, "S3")
    show(
        f"Reads of 100 lines of a log of {SIZE / 2**30:.3g} GiB, {lines:,} lines, milliseconds: median (min to max); "
        f"moved to S3 in {moved:.0f} s, {SIZE / 2**20 / moved:.0f} MiB/s",
        ["what", "where", "first", "ms", "ratio", "goal"],
        rows,
    )


def write(service: Service, attempt: Attempted, lines: int) -> int:
    """A log of learner 1, with a little of learner 2, straight into Postgres. Returns how many lines it has, which is
    ``lines`` or somewhat more."""
    chance = random.Random(1)
    bodies = [b"".join(_LINE % (n, chance.random(), chance.random()) for n in range(_LINES)) for _ in range(20)]
    chunks = -(-lines // _LINES)
    database = service.remote.context.database
    base = {"job_id": attempt.job_id, "project_id": service.person.project_id, "attempt": attempt.n, "lines": _LINES}

    def put(first: int) -> None:
        rows = []
        for number in range(first, min(first + 100, chunks)):
            at = _START + 1000 * number
            rare = number % _RARE == 0 and number < chunks // 2
            rows.append(
                base
                | {
                    "first_line": number * _LINES,
                    "rank": 1 if rare else 0,
                    "body": bodies[number % len(bodies)],
                    "times": pack_times([at] * _LINES),
                    "latest": at,
                    "created_at": datetime.fromtimestamp(at / 1000, UTC),
                }
            )
        with database.transaction() as session:
            session.execute(insert(LogChunk), rows)

    # Side by side: each connection's process of Postgres compresses for itself, and that takes most of the time.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(put, range(0, chunks, 100)):
            pass
    with database.transaction() as session:
        session.execute(
            update(LogCursor)
            .where(LogCursor.job_id == attempt.job_id)
            .values(next_line=chunks * _LINES, bytes=chunks * _LINES * _LINE_BYTES, latest=_START + 1000 * chunks)
        )
        session.execute(update(Attempt).where(Attempt.id == attempt.id).values(logs_due=func.now()))
    return chunks * _LINES


def _leave_the_others(service: Service, attempt: Attempted) -> None:
    """Logs of other parts are not moved to S3 meanwhile."""
    with service.remote.context.database.transaction() as session:
        session.execute(update(Attempt).where(Attempt.id != attempt.id).values(logs_due=None))


def _reads(service: Service, job_id: str, lines: int, where: str) -> list[list[str]]:
    reads: dict[str, tuple[str, dict[str, int | str]]] = {
        "GET /healthz (the bare round trip)": ("/healthz", {}),
        "the tail": ("", {"tail": 100}),
        "the tail of learner 2, which has long been silent": ("", {"tail": 100, "learner": 2}),
        "the tail of an attempt": ("", {"tail": 100, "attempt": 1}),
        "upwards from the middle": ("", {"before": lines // 2, "limit": 100}),
        "from a line in the middle": ("", {"from": lines // 2, "limit": 100}),
        "from a time in the middle": ("", {"at": _START + 1000 * (lines // _LINES // 2), "limit": 100}),
        "one call of a search that finds nothing": ("/search", {"q": "nowhere"}),
    }
    rows = []
    bare = 0.0
    for name, (part, query) in reads.items():
        path = part if part == "/healthz" else f"/api/v1/jobs/{job_id}/logs{part}"
        taken = []
        for _ in range(_ROUNDS if part != "/search" else 3):
            begun = time.perf_counter()
            answer = service.person.http.get(path, params=query)
            taken.append(time.perf_counter() - begun)
            answer.raise_for_status()
            if not part:
                assert len(answer.json()["lines"]) == 100, name
        middle = sorted(taken)[len(taken) // 2]
        bare = bare or middle
        goal = f"≤ {GOAL * 1000:.0f} ms" if name.startswith("the tail") else ""
        rows.append([name, where, f"{taken[0] * 1000:.1f}", spread(taken, 1000), f"{middle / bare:.0f}", goal])
    return rows
