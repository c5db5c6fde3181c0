"""What a sweep's trials cost beside the same number of plain jobs: each takes 0.1 s, and the engine runs two at a time.

The two take turns. A sweep keeps two trials under way (``parallel``, its default), and the plain jobs are submitted one
after the other by the client. Measured are the wall time and the processor time of all servers: API, workers, Postgres,
Redis and S3, but not the learners. Two sizes show whether the cost of a trial grows with their number.
``WEFT_BENCH_TRIALS`` (200) is the larger one, ``WEFT_BENCH_ROUNDS`` (2) how often each is measured.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from tests.e2e.stack import Stack, manifest

from benchmarks.table import show

GOAL = 1.2
TRIALS = int(os.environ.get("WEFT_BENCH_TRIALS", "200"))
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "2"))
SEARCHES = ("random", "tpe")
_SLOTS = 2
_VALUE = '{"values": {"score": {"type": 3, "value": "\'$SCORE\'"}}}'
_COMMAND = f"sleep 0.1; echo '{_VALUE}' > $LOG_DIR/evaluation-metrics.txt"


def measure(stack: Stack, folder: Path) -> None:
    """Print the table."""
    cpus = stack.json("engines")[0]["capacity"]["cpus"] / _SLOTS
    metrics = {"type": "emetrics_file"}
    job = manifest(_COMMAND, cpus=cpus, memory="64 MiB", evaluation_metrics=metrics, env={"SCORE": "0.5"})
    ways: dict[str, Callable[[int], None]] = {"jobs": partial(_jobs, stack, job)}
    ways |= {search: partial(_sweep, stack, job, search) for search in SEARCHES}
    for way in ways.values():
        way(2)  # the environment is built, and Optuna is imported
    rows = []
    for count in (TRIALS // 4, TRIALS):
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                found[name].append(_taken(stack, partial(way, count)))
        rows += _rows(count, found)
    columns = ("what", "number", "wall s", "ratio", "servers' CPU s", "ratio", "goal")
    show(f"Trials of 0.1 s beside plain jobs, {_SLOTS} at a time", columns, rows)


def _rows(count: int, found: dict[str, list[tuple[float, float]]]) -> list[list[str]]:
    def middle(name: str, at: int) -> float:
        return statistics.median(taken[at] for taken in found[name])

    rows = []
    for name in found:
        wall, cpu = (middle(name, at) for at in (0, 1))
        ratios = (wall / middle("jobs", 0), cpu / middle("jobs", 1))
        told = "" if name == "jobs" else f"≤ {GOAL:g}, {'met' if max(ratios) <= GOAL else 'missed'}"
        rows.append([name, str(count), f"{wall:.1f}", f"{ratios[0]:.2f}", f"{cpu:.1f}", f"{ratios[1]:.2f}", told])
    return rows


def _jobs(stack: Stack, job: dict[str, Any], count: int) -> None:
    jobs = [stack.train(job, None) for _ in range(count)]
    for submitted in reversed(jobs):
        submitted.wait()


def _sweep(stack: Stack, job: dict[str, Any], search: str, count: int) -> None:
    space = {
        "lr": {"log": [1e-4, 1e-1]},
        "score": {"uniform": [0, 1], "set": "env.SCORE"},
        "width": {"int_log": [16, 1024]},
    }
    told = {"parameters": space, "metric": "score", "trials": count, "parallel": _SLOTS, "search": search}
    ended = stack.client.sweeps.wait(stack.client.sweep({**job, "sweep": told}).id)
    states = {trial.state for trial in stack.client.sweeps.trials(ended.id)}
    if (ended.state, ended.told, states) != ("COMPLETED", count, {"COMPLETED"}):
        raise RuntimeError(f"the sweep {ended.id} is {ended.state} after {ended.told} trials: {ended.reason}")


def _taken(stack: Stack, what: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the clock, and of the processor."""
    cpu, begun = _used(stack), time.monotonic()
    what()
    return time.monotonic() - begun, _used(stack) - cpu


def _used(stack: Stack) -> float:
    """Seconds of processor time that the servers have used so far, including those of processes that have ended."""
    supervisor = psutil.Process(stack.parts()["weft"])
    used = 0.0
    for process in (supervisor, *supervisor.children(recursive=True)):
        times = process.cpu_times()
        used += times.user + times.system + times.children_user + times.children_system
    return used
