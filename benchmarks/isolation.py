"""What the sandbox of the local engine costs: the start of a job, and Gloo between two learners. One stack has two
engines, with isolation ``strict`` and ``none``, which take turns."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path

from tests.e2e.stack import Stack, lines, manifest, running

from benchmarks.table import median, show, spread

ROUNDS = 10
START_GOAL = 0.05
"""Seconds that the sandbox may add to a start."""
_NOW = "python -c 'import time; print(time.time(), flush=True)'"
_REDUCE = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1 << 20)
for number in range(220):
    if number == 20:
        begun = time.perf_counter()
    dist.all_reduce(tensor)
print(4 * 200 / (time.perf_counter() - begun), flush=True)
"""


def measure(folder: Path) -> None:
    code = folder / "code"
    code.mkdir()
    (code / "reduce.py").write_text(_REDUCE)
    engines = {name: {"type": "local", "isolation": name} for name in ("strict", "none")}
    settings = {"WEFT_ENGINES": json.dumps(engines), "WEFT_DEFAULT_ENGINE": "none"}
    starts, rates = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    with running(folder / "home", settings) as stack:
        for number in range(ROUNDS + 1):
            for engine in engines:
                rate = _rate(stack, code, engine) if number % 2 == 0 else None
                begun = time.time()
                job = stack.train(manifest(_NOW, engine=engine), None).wait()
                if number:  # the first builds environments and fills caches
                    starts[engine].append(float(lines(job)[0]) - begun)
                    rates[engine] += [] if rate is None else [rate]
    rows = [
        [what, *(spread(of[engine], digits=2) for engine in ("none", "strict")), difference, goal]
        for what, of, difference, goal in (
            (
                "submit to user code, s",
                starts,
                f"{median(starts['strict']) - median(starts['none']):+.3f} s",
                f"< {START_GOAL:g} s",
            ),
            (
                "all-reduce of 4 MB by Gloo, MB/s",
                rates,
                f"× {median(rates['strict']) / median(rates['none']):.2f}",
                "no slower",
            ),
        )
    ]
    show(
        "The local engine's sandbox, median (min to max)",
        ["what", "isolation: none", "isolation: strict", "difference", "goal"],
        rows,
    )


def _rate(stack: Stack, code: Path, engine: str) -> float:
    """MB/s of an all-reduce between two learners."""
    framework = {"name": "pytorch", "command": "python reduce.py"}
    job = stack.train(manifest("", engine=engine, learners=2, cpus=1, memory="1 GiB", framework=framework), code).wait()
    return float(lines(job)[0])
