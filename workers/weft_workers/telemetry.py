"""Prometheus metrics of a worker: of its main process, Celery's pool and the sweeper together.

They are several processes, so prometheus-client keeps the numbers in files that all of them map (its multiprocess
mode), and the main process serves their sum.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus-client's own environment variable."""
_STEP = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_WAIT = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)


class Metrics:
    """The metrics of steps. They have a registry of their own, so that several contexts can live in one process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody reads
        self.registry = CollectorRegistry()
        self.steps = Histogram(
            "weft_step_seconds",
            "Time of a job's step, by what it did.",
            ["action"],
            buckets=_STEP,
            registry=self.registry,
        )
        self.passes = Histogram(
            "weft_admission_pass_seconds",
            "Time of a pass of admission over an engine's queue.",
            ["engine"],
            buckets=_STEP,
            registry=self.registry,
        )
        self.waits = Histogram(
            "weft_admission_wait_seconds",
            "From when a job is queued to when it is admitted.",
            ["engine"],
            buckets=_WAIT,
            registry=self.registry,
        )
        self.attempts = Counter(
            "weft_attempts", "Attempts that have ended, by outcome.", ["engine", "outcome"], registry=self.registry
        )


def share(module: str, arguments: Sequence[str]) -> None:
    """Have all of this worker's processes keep their numbers in one folder.

    Returns at once if they do already; else starts the program anew in this very process, as prometheus-client decides
    on this mode when it is imported.
    """
    if os.environ.get(SHARED):
        os.makedirs(os.environ[SHARED], exist_ok=True)
        return
    os.environ[SHARED] = tempfile.mkdtemp(prefix="weft-metrics-")
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell is wanted


def serve(port: int) -> None:
    """Serve the sum of all processes' numbers at ``/metrics``. Raises OSError when the port is taken."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    start_http_server(port, registry=registry)
