"""The effect on others of a job that prints as fast as it can: how old another job's lines are when its follower has
them, and how soon the API answers; alone and beside the flood, in one run, with the whole stack and its agents."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from tests.e2e.stack import Stack, eventually, manifest

import weft
from benchmarks.table import show

SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", 30))
EVERY = 0.1  # seconds between two lines of the other job
_WARM = 2.0
_CLOCK = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    print(time.monotonic_ns(), flush=True)
    time.sleep(float(sys.argv[2]))
"""
_FLOOD = """
import os, signal, time
enough = []
signal.signal(signal.SIGTERM, lambda *_: enough.append(True))
lines, begun = 0, time.monotonic()
while not enough:
    os.write(1, b"twenty bytes a line\\n" * 50_000)
    lines += 50_000
rate = lines / (time.monotonic() - begun)
time.sleep(5)  # until the log takes lines again
print(f"{rate:,.0f} lines/s", flush=True)
"""


def measure(stack: Stack, folder: Path) -> None:
    code = folder / "flood"
    code.mkdir()
    (code / "clock.py").write_text(_CLOCK)
    (code / "flood.py").write_text(_FLOOD)
    alone = _others(stack, code)
    flood = stack.train(manifest("exec python flood.py", name="flood", learners=1, cpus=0.5), code)
    eventually(lambda: any(flood.logs(tail=1)), "the flood's first line")
    beside = _others(stack, code)
    flood.halt()
    flood.wait(timeout=120, check=False)
    rate = next(line.text for line in flood.logs(tail=1))
    show(
        f"Beside a job that prints without a pause ({rate}), {SECONDS:g} s",
        ["", "another job's lines: p50", "p99", "most", "answers of the API: p50", "most"],
        [["alone", *alone], ["beside it", *beside]],
    )


def _others(stack: Stack, code: Path) -> list[str]:
    """How old a quiet job's lines are when its follower has them, and how long the API takes to answer about it."""
    command = f"exec python clock.py {SECONDS + _WARM} {EVERY}"
    job = stack.train(manifest(command, name="clock", learners=1, cpus=0.5), code)
    ages: list[float] = []
    follower = threading.Thread(target=_follow, args=(job, ages))
    follower.start()
    answers = []
    while follower.is_alive():
        begun = time.monotonic()
        job.refresh()
        answers.append(time.monotonic() - begun)
        time.sleep(EVERY)
    ages, answers = sorted(ages[int(_WARM / EVERY) :]), sorted(answers)
    parts = [*(_part(ages, share) for share in (0.5, 0.99, 1)), *(_part(answers, share) for share in (0.5, 1))]
    return [f"{part * 1000:.0f} ms" for part in parts]


def _follow(job: weft.Job, ages: list[float]) -> None:
    for item in job.follow_logs():
        if isinstance(item, weft.LogLine) and item.text.isdecimal():
            ages.append((time.monotonic_ns() - int(item.text)) / 1e9)


def _part(values: list[float], share: float) -> float:
    """That share of them is no larger."""
    return values[int(share * (len(values) - 1))]
