"""`make bench [ARGS="submit start overhead"]`: start a stack, measure, print tables."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.e2e.stack import Stack, running

from benchmarks import overhead, start, submit

BENCHMARKS: dict[str, Callable[[Stack, Path], None]] = {
    "submit": submit.measure,
    "start": start.measure,
    "overhead": overhead.measure,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder, running(Path(folder) / "home") as stack:
        for name in names or BENCHMARKS:
            BENCHMARKS[name](stack, Path(folder))
    return 0


sys.exit(main(sys.argv[1:]))
