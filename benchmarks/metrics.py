"""A million points of a job: how fast they are taken in, and how fast a chart of them is read.

A real API process with Postgres (which waits for the disk, as in use). ``WEFT_BENCH_POINTS`` makes it smaller.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tests.api.conftest import Agent

from benchmarks.logs.service import Service
from benchmarks.table import show, spread

POINTS = int(os.environ.get("WEFT_BENCH_POINTS", "1000000"))
ROUNDS = 9
_SERIES = (1, 10, 100)
_WHAT = (
    "taken in, points/s",
    "a call of 1 point, ms",
    "chart of all, ms",
    "chart over time, ms",
    "chart of a 50th, ms",
    "chart of one series, ms",
    "list of series, ms",
    "CSV, s",
    "Parquet, s",
)
_NOW = 1_769_847_309_000
_A_CALL = 20_000
"""Points, in at most 2,000 records: the API takes no more."""


def measure(folder: Path) -> None:
    service = Service(folder, apis=1)
    try:
        columns = [_measure(service, folder, names) for names in _SERIES]
    finally:
        service.stop()
    rows = [[what, *values] for what, values in zip(_WHAT, zip(*columns, strict=True), strict=True)]
    show(f"Metrics: {POINTS:,} points of a job, charts of 600 buckets a series", ("series", *map(str, _SERIES)), rows)


def _measure(service: Service, folder: Path, names: int) -> list[str]:
    attempt = service.attempt(1)
    (agent,) = attempt.agents
    agent.http.base_url = service.apis[0].url
    steps = POINTS // names
    calls, seconds = send(agent, steps, names)
    rate = steps * names / seconds
    single = [_post(agent, _one(agent, calls + n, steps + n)) for n in range(100)]
    http = service.client().jobs._transport  # the transport, so that nothing is counted but the answer
    path = f"/jobs/{attempt.job_id}/metrics"

    def timed(**params: Any) -> str:
        times = [_seconds(lambda: http.request("GET", f"{path}/query", params=params)) for _ in range(ROUNDS)]
        return spread(times, 1000)

    def exported(form: Literal["csv", "parquet"]) -> str:
        export = service.client().jobs.metrics.export
        return f"{_seconds(lambda: export(attempt.job_id, folder / f'{names}.{form}', form)):.2f}"

    listed = [_seconds(lambda: http.request("GET", path)) for _ in range(ROUNDS)]
    return [
        f"{rate:,.0f}",
        spread(single, 1000),
        timed(),
        timed(x="time"),
        timed(**{"from": steps // 2, "to": steps // 2 + steps // 50}),
        timed(name="train/m0"),
        spread(listed, 1000),
        exported("csv"),
        exported("parquet"),
    ]


def send(agent: Agent, steps: int, names: int) -> tuple[int, float]:
    """Start, and report so many series of so many steps. Returns the calls that it took, and their seconds."""
    agent.start()
    at_once = min(_A_CALL // names, 2000)
    calls = [_call(agent, start, min(start + at_once, steps), names) for start in range(0, steps, at_once)]
    begun = time.perf_counter()
    for sequence, body in enumerate(calls):
        _post(agent, body.replace(b'"sequence":-1', b'"sequence":%d' % sequence, 1))
    return len(calls), time.perf_counter() - begun


def _call(agent: Agent, start: int, stop: int, names: int) -> bytes:
    records = [
        {
            "t": _NOW + 100 * step,
            "kind": "user",
            "group": "train",
            "etimes": {"iteration": step},
            "values": {f"m{n}": math.exp(-step / 1e5) + n for n in range(names)},
        }
        for step in range(start, stop)
    ]
    head = {"rank": agent.rank, "instance": agent.instance, "sequence": -1, "records": records}
    return json.dumps(head, separators=(",", ":")).encode()


def _one(agent: Agent, sequence: int, step: int) -> bytes:
    return _call(agent, step, step + 1, 1).replace(b'"sequence":-1', b'"sequence":%d' % sequence, 1)


def _post(agent: Agent, body: bytes) -> float:
    headers = {"Content-Type": "application/json"}
    return _seconds(
        lambda: agent.http.post("/api/v1/learner/metrics", content=body, headers=headers).raise_for_status()
    )


def _seconds(do: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun
