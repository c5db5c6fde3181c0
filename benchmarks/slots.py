"""Many jobs of one second on an engine that runs two at a time, beside ``xargs -P2`` with the same commands.

``WEFT_BENCH_JOBS`` (500) is how many there are.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.e2e.stack import Stack, manifest

from benchmarks.start import environment_python
from benchmarks.table import show

GOAL = 1.1
JOBS = int(os.environ.get("WEFT_BENCH_JOBS", "500"))
SLOTS = 2
_COMMAND = "python -c 'import time; time.sleep(1)'"


def measure(stack: Stack, folder: Path) -> None:
    cpus = stack.json("engines")[0]["capacity"]["cpus"] / SLOTS
    stack.train(manifest(_COMMAND, cpus=cpus), None).wait()  # builds the environment
    path = f"{environment_python(stack, 'python').parent}:/usr/bin:/bin"
    begun = time.time()
    lines = "\n".join([_COMMAND] * JOBS)
    xargs = ["xargs", "-d", "\n", "-P", str(SLOTS), "-n", "1", "bash", "-c"]
    subprocess.run(xargs, env={"PATH": path}, input=lines, text=True, check=True)
    by_hand = time.time() - begun
    begun = time.time()
    jobs = [stack.train(manifest(_COMMAND, cpus=cpus), None) for _ in range(JOBS)]
    submitted = time.time() - begun
    for job in jobs:
        job.wait()
    by_weft = time.time() - begun
    show(
        f"Slots: {JOBS} jobs of one second, {SLOTS} at a time, seconds",
        ["what", "seconds", "seconds a job and slot", "ratio", "goal"],
        [
            [f"xargs -P{SLOTS}", f"{by_hand:.1f}", f"{by_hand * SLOTS / JOBS:.2f}", "1", ""],
            [
                f"weft (all submitted after {submitted:.1f} s)",
                f"{by_weft:.1f}",
                f"{by_weft * SLOTS / JOBS:.2f}",
                f"{by_weft / by_hand:.2f}",
                f"≤ {GOAL:g}",
            ],
        ],
    )
