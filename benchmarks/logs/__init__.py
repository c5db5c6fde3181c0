"""The path of a log line and its speed: `make bench-logs`.

Real API processes with Postgres (which waits for the disk, as in use), Redis and S3 of their own; learners are clients
of the learner's API with an attempt's token, in a process of their own, that send as the agent does. `WEFT_BENCH_…`
make it smaller, see benchmarks/README.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.logs import faults, followers, latency, tail, throughput
from benchmarks.logs.service import running

_MEASURES = {
    "latency": latency.measure,
    "followers": followers.measure,
    "throughput": throughput.measure,
    "faults": faults.measure,
    "tail": tail.measure,
}
PARTS = os.environ.get("WEFT_BENCH_PARTS", ",".join(_MEASURES)).split(",")


def measure(folder: Path) -> None:
    with running(folder) as service:
        for name in PARTS:
            _MEASURES[name](service)
