"""Every list, filter, order, search and count that the page and `weft` offer, in a project with 1,000, 30,000 and a
million jobs beside 99 other projects, as the API answers them.

A real API process with Postgres. `WEFT_BENCH_JOBS` (`1000,30000,1000000`) and `WEFT_BENCH_ROUNDS` change the sizes and
how often each is asked. The measurements are written to `WEFT_BENCH_JSON`, or `lists.json` in the working directory.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
from tests.many_jobs import fill

from benchmarks.logs.service import Service
from benchmarks.table import median, show

SIZES = [int(size) for size in os.environ.get("WEFT_BENCH_JOBS", "1000,30000,1000000").split(",")]
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "40"))
GROWTH, P99 = 2.0, 50.0
"""The goals: the most that the largest size may take compared with the smallest, and milliseconds."""
_OTHERS = 99
_WARM = 3

JOBS = {
    "newest first": "",
    "a single job": "limit=1",
    "500 jobs": "limit=500",
    "oldest first": "sort=created_at",
    "PROCESSING": "state=PROCESSING",
    "five open states": "state=QUEUED&state=PENDING&state=DOWNLOADING&state=PROCESSING&state=STORING",
    "FAILED": "state=FAILED",
    "by name": "sort=name",
    "by name, descending": "sort=-name",
    "by state": "sort=state",
    "by state, descending": "sort=-state",
    "FAILED by name": "state=FAILED&sort=name",
    "PROCESSING by name": "state=PROCESSING&sort=name",
    "text that many have": "q=resnet",
    "text that few have": "q=zebra",
    "text that few have, FAILED": "q=zebra&state=FAILED",
    "text that few have, by name": "q=zebra&sort=name",
    "text that nobody has": "q=nothing+like+it",
    "text of two characters that nobody has": "q=zq",
    "label that many have": "label=team%3Dvision",
    "label that few have": "label=run%3D3",
    "label of old jobs": "label=generation%3Dfirst",
    "label of old jobs, by name": "label=generation%3Dfirst&sort=name",
    "two labels": "label=team%3Dvision&label=generation%3Dfirst",
    "label and state": "label=team%3Dvision&state=FAILED",
    "user": "user=usr-3",
    "user with few jobs": "user=usr-rare",
    "user with few jobs, by name": "user=usr-rare&sort=name",
    "engine with few jobs": "engine=cluster",
    "of the last day": "since=24h",
    "of the last day, by name": "since=24h&sort=name",
    "metric that half have": "metric=val/loss%3C0.5",
    "metric that few have": "metric=val/loss%3C0.00001",
    "by metric": "sort=metric:val/loss",
    "by the largest of a metric, descending": "sort=-metric:val/accuracy:max",
    "by metric, COMPLETED": "sort=metric:val/loss&state=COMPLETED",
    "by metric, with label": "sort=metric:val/loss&label=run%3D3",
    "with a column of parameters": "param=lr",
}
OTHERS = {
    "projects (with counts)": "/api/v1/projects",
    "audit": "/api/v1/audit",
    "audit of a user": "/api/v1/audit?user=usr-rare",
    "audit of a rare action": "/api/v1/audit?action=jobs.halt",
    "audit of all of an object's actions": "/api/v1/audit?action=jobs",
    "refusals in the audit": "/api/v1/audit?outcome=refused",
    "audit of a day a while ago": "/api/v1/audit?until=2h",
    "tokens": "/api/v1/tokens",
    "users": "/api/v1/users",
    "members": "/api/v1/projects/{project}/members",
    "quota": "/api/v1/projects/{project}/quota",
    "engines": "/api/v1/engines",
    "an engine": "/api/v1/engines/local",
    "models": "/api/v1/models?q=none",
    "a job": "/api/v1/jobs/{job}",
    "its events": "/api/v1/jobs/{job}/events",
    "its metrics": "/api/v1/jobs/{job}/metrics",
    "its deliveries": "/api/v1/jobs/{job}/deliveries",
    "Prometheus": "/metrics",
}


def measure(folder: Path) -> None:
    found: dict[int, dict[str, list[float]]] = {}
    for size in SIZES:
        service = Service(folder, apis=1)
        try:
            found[size] = _measure(service, size)
        finally:
            service.stop()
    least, most = SIZES[0], SIZES[-1]
    rows, told = [], []
    for name in found[least]:
        times = {size: sorted(found[size][name]) for size in SIZES}
        growth = median(times[most]) / median(times[least])
        last = times[most][int(0.99 * (len(times[most]) - 1))]
        missed = ", ".join([*(["growth"] if growth > GROWTH else []), *(["p99"] if last > P99 else [])])
        rows.append([name, *(f"{median(times[size]):.1f}" for size in SIZES), f"{growth:.1f}", f"{last:.0f}", missed])
        told.append({"what": name, "growth": growth, "p99_ms": last, "ms": {n: median(times[n]) for n in SIZES}})
    columns = ["median, ms", *(f"{size:,} jobs" for size in SIZES), "growth", f"p99 with {most:,}", "missed"]
    show(f"Lists: {ROUNDS} times each; goals: growth ≤ {GROWTH:g}, p99 < {P99:g} ms", columns, rows)
    Path(os.environ.get("WEFT_BENCH_JSON", "lists.json")).write_text(json.dumps({"lists": told}, indent=1) + "\n")


def _measure(service: Service, size: int) -> dict[str, list[float]]:
    person = service.remote.person()
    url = service.settings.database_url.get_secret_value().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update users set is_admin = true where id = %s", [person.user_id])
        fill(connection, person.project_id, size, _OTHERS)
        connection.execute("vacuum analyze")
    with httpx.Client(base_url=service.apis[0].url, headers=dict(person.http.headers), timeout=120) as http:
        jobs = http.get("/api/v1/jobs?limit=3").json()["jobs"]
        known = {"project": person.project, "job": jobs[0]["id"]}
        asked = {name: f"/api/v1/jobs?{query}" for name, query in JOBS.items()}
        for order in ("-created_at", "name", "-state", "metric:val/loss"):
            query = f"sort={order}"
            cursor = http.get(f"/api/v1/jobs?{query}").json()["next_cursor"]
            asked[f"second page, {order}"] = f"/api/v1/jobs?{query}&cursor={cursor}"
        asked |= {name: path.format(**known) for name, path in OTHERS.items()}
        return {name: _times(http, path) for name, path in asked.items()}


def _times(http: httpx.Client, path: str) -> list[float]:
    """Milliseconds, without the first ones, which fill caches."""
    return [_milliseconds(lambda: http.get(path)) for _ in range(_WARM + ROUNDS)][_WARM:]


def _milliseconds(ask: Callable[[], httpx.Response]) -> float:
    begun = time.perf_counter()
    ask().raise_for_status()
    return (time.perf_counter() - begun) * 1000
