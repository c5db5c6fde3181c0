"""Whether any process grows while a stack works for half an hour: memory and open files of each kind of process.

All the while, a job logs ten lines and ten values of a metric a second, a client follows its log, short jobs come one
after another, and the list of jobs is read. ``WEFT_BENCH_SECONDS`` (1,800) is how long.

The memory is USS, which only the process itself uses: PSS changes with the number of processes that share a page.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.progress import Progress
from tests.e2e.stack import Stack, eventually, manifest

from benchmarks.memory import MIB, by_kind
from benchmarks.table import median, show

SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", "1800"))
SAMPLES = 60
GOAL = 1.05
"""How much more a kind of process may have in the last fifth than in the second. In the first it still warms up."""
_BUSY = """python -u -c "
import itertools, time
from weft_trainer import log_metrics
for step in itertools.count():
    print('line', step)
    log_metrics(step=step, loss=1 / (step + 1))
    time.sleep(0.1)
"
"""


@dataclass
class _Course:
    """The samples of one kind of process: the sums of all its processes."""

    memory: list[float] = field(default_factory=list)
    """MiB."""
    files: list[float] = field(default_factory=list)


def measure(stack: Stack, folder: Path) -> None:
    busy = stack.train(manifest(_BUSY), None)
    eventually(lambda: busy.refresh().state == "PROCESSING", "the job runs")
    over = threading.Event()
    done = _Work(stack, over)
    threads = [
        threading.Thread(target=_follow, args=(stack, busy.id, over), daemon=True),
        threading.Thread(target=done.run, daemon=True),
    ]
    for thread in threads:
        thread.start()
    courses: dict[str, _Course] = {}
    begun = time.monotonic()
    with Progress() as progress:
        for sample in progress.track(range(1, SAMPLES + 1), description="soaking"):
            time.sleep(max(0.0, begun + SECONDS * sample / SAMPLES - time.monotonic()))
            _sample(stack, courses)
    over.set()
    threads[1].join()
    busy.delete()
    rows = []
    for kind, course in sorted(courses.items()):
        before, after = _ends(course.memory)
        ratio = after / before
        opened = " → ".join(f"{value:.0f}" for value in _ends(course.files))
        met = "yes" if ratio <= GOAL else "no"
        rows.append([kind, f"{before:.1f}", f"{after:.1f}", f"{ratio:.3f}", f"≤ {GOAL:g}", met, opened])
    show(
        f"Soak of {SECONDS / 60:.0f} minutes, {done.jobs} short jobs: USS in MiB, medians of a fifth of it",
        ["what", "second fifth", "last fifth", "ratio", "goal", "met", "open files"],
        rows,
    )


class _Work:
    """Short jobs, one after another, and reads of the list."""

    def __init__(self, stack: Stack, over: threading.Event) -> None:
        self._stack = stack
        self._over = over
        self.jobs = 0

    def run(self) -> None:
        while not self._over.is_set():
            job = self._stack.train(manifest("echo done"), None)
            self._stack.client.jobs.list(limit=50)
            job.wait()
            self.jobs += 1


def _follow(stack: Stack, job_id: str, over: threading.Event) -> None:
    for _ in stack.client.jobs.follow_logs(job_id):
        if over.is_set():
            return


def _sample(stack: Stack, courses: dict[str, _Course]) -> None:
    for kind, found in by_kind(stack).items():
        # Agents of short jobs come and go; the oldest one is the long job's.
        chosen = [min(found, key=lambda process: process.create_time())] if kind == "agent" else found
        try:
            memory = sum(process.memory_full_info().uss for process in chosen) / MIB
            files = sum(process.num_fds() for process in chosen)
        except psutil.Error:
            continue  # it has just ended
        course = courses.setdefault(kind, _Course())
        course.memory.append(memory)
        course.files.append(files)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the second and of the last fifth."""
    fifth = max(1, len(values) // 5)
    return median(values[fifth : 2 * fifth] or values), median(values[-fifth:])
