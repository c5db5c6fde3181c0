"""`make bench [ARGS="submit start …"]`: measure, print tables, write JSON. See benchmarks/README.md."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.e2e.stack import Stack, running

from benchmarks import (
    attacks,
    cli,
    clusters,
    data,
    flood,
    gpu,
    halving,
    hangs,
    install,
    isolation,
    learners,
    lists,
    logs,
    memory,
    metrics,
    mlflow,
    overhead,
    packages,
    page,
    pods,
    prepare,
    queue,
    slots,
    soak,
    start,
    submit,
    submits,
    sweeps,
    trials,
    tunnels,
)
from benchmarks.plot import PICTURE, draw
from benchmarks.results import Ratio, by_name, check, keep, ratios, read_baseline, tell
from benchmarks.table import SHOWN

_JSON = Path("build/bench.json")

BENCHMARKS: dict[str, Callable[[Stack, Path], None]] = {
    "cli": cli.measure,
    "memory": memory.measure,
    "submit": submit.measure,
    "start": start.measure,
    "packages": packages.measure,
    "slots": slots.measure,
    "overhead": overhead.measure,
    "flood": flood.measure,
    "halving": halving.measure,
    "trials": trials.measure,
    "soak": soak.measure,
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
    "hangs": hangs.measure,
    "learners": learners.measure,
    "lists": lists.measure,
    "page": page.measure,
    "pods": pods.measure,
    "sweeps": sweeps.measure,
    "tunnels": tunnels.measure,
}


def main(arguments: list[str]) -> int:
    known = [*BENCHMARKS, *ALONE, *clusters.CLUSTERS, "gpu"]
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--check", action="store_true", help="compare the ratios with those of the baseline")
    parser.add_argument("--keep", action="store_true", help="make the ratios the baseline, and draw it")
    parser.add_argument("--json", type=Path, default=_JSON, help=f"file for all ratios and tables (default {_JSON})")
    chosen = parser.parse_args(arguments)
    names = list(dict.fromkeys(chosen.names)) or known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no benchmark {unknown[0]!r}; there are: {', '.join(known)}")
    found: list[Ratio] = []

    def measure(name: str, how: Callable[[], object]) -> None:
        shown = len(SHOWN)
        how()
        found.extend(ratios(name, SHOWN[shown:]))

    with tempfile.TemporaryDirectory(prefix="weft-bench-") as place:
        folder = Path(place)
        if here := [name for name in names if name in BENCHMARKS]:
            with running(folder / "home") as stack:
                for name in here:
                    measure(name, partial(BENCHMARKS[name], stack, folder))
    for name in names:
        if name in ALONE:
            with tempfile.TemporaryDirectory(prefix="weft-bench-") as place:
                measure(name, partial(ALONE[name], Path(place)))
        elif name in clusters.CLUSTERS:
            measure(name, partial(clusters.measure, name))
    missed: list[int] = []
    if "gpu" in names:
        measure("gpu", lambda: missed.append(gpu.measure()))
    tell(found, SHOWN, chosen.json)
    if chosen.keep:
        keep(by_name(found))
        PICTURE.write_text(draw(read_baseline()))
    right = check(by_name(found)) if chosen.check else True
    return 0 if right and (not any(missed) or names == known) else 1  # when all are run, the GPU's may be left out


# The servers are stopped in this case, too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(main(sys.argv[1:]))
