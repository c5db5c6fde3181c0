"""`make bench [ARGS="submit start …"]`: measure, print tables. benchmarks/README.md says what there is."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.e2e.stack import Stack, running

from benchmarks import (
    attacks,
    cli,
    clusters,
    data,
    flood,
    gpu,
    install,
    isolation,
    learners,
    lists,
    logs,
    memory,
    metrics,
    mlflow,
    overhead,
    prepare,
    queue,
    slots,
    start,
    submit,
    submits,
    sweeps,
)

BENCHMARKS: dict[str, Callable[[Stack, Path], None]] = {
    "cli": cli.measure,
    "memory": memory.measure,
    "submit": submit.measure,
    "start": start.measure,
    "slots": slots.measure,
    "overhead": overhead.measure,
    "flood": flood.measure,
}
# These need no stack.
ALONE: dict[str, Callable[[Path], None]] = {
    "install": install.measure,
    "submits": submits.measure,
    "data": data.measure,
    "prepare": prepare.measure,
    "logs": logs.measure,
    "metrics": metrics.measure,
    "mlflow": mlflow.measure,
    "queue": queue.measure,
    "isolation": isolation.measure,
    "attacks": attacks.measure,
    "learners": learners.measure,
    "lists": lists.measure,
    "sweeps": sweeps.measure,
}


def main(names: list[str]) -> int:
    known = [*BENCHMARKS, *ALONE, *clusters.CLUSTERS, "gpu"]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    names = names or known
    if here := [name for name in names if name in BENCHMARKS]:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder, running(Path(folder) / "home") as stack:
            for name in here:
                BENCHMARKS[name](stack, Path(folder))
    for name in names:
        if name in ALONE:
            with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
                ALONE[name](Path(folder))
    for name in names:
        if name in clusters.CLUSTERS:
            clusters.measure(name)
    if "gpu" in names and gpu.measure() and names != known:  # of all there are, it may be left out
        return 1
    return 0


# What was started is taken down, also then.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(main(sys.argv[1:]))
