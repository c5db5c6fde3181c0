"""The time that packages built before add to a start, and how often a job of many learners builds them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.e2e.stack import Stack, lines, manifest

from benchmarks.table import median, show, spread
from weft import Job

GOAL = 0.3
"""Seconds that packages which were built before may add to a start."""
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "10"))
PACKAGES = ["einops", "humanize", "tabulate", "tqdm", "wrapt"]
LEARNERS = int(os.environ.get("WEFT_BENCH_GANG", "50"))
COMMAND = "python -c 'import time; print(time.time(), flush=True)'"


def measure(stack: Stack, folder: Path) -> None:
    def submit(packages: list[str], **changes: object) -> Job:
        framework = {"name": "python", "version": "3.11", "command": COMMAND, "packages": packages}
        return stack.train(manifest("", framework=framework, **changes), None)

    def start(packages: list[str]) -> float:
        """Seconds from the submit to user code."""
        begun = time.time()
        return float(lines(submit(packages).wait(timeout=900))[0]) - begun

    start([])  # builds the environment
    built = start(PACKAGES)
    found: dict[int, list[float]] = {0: [], len(PACKAGES): []}
    for _ in range(ROUNDS):  # in turns: other programs use the machine, too
        for number, seconds in found.items():
            seconds.append(start(PACKAGES[:number]))
    least = median(found[0])
    show(
        f"Packages: submit to the first line of user code, {ROUNDS} times, seconds: median (min to max)",
        ["what", "seconds", "more", "goal"],
        [
            ["no packages", spread(found[0], digits=2), "", ""],
            [f"{len(PACKAGES)} packages, first job: it builds them", f"{built:.2f}", f"{built - least:.2f}", ""],
            [
                f"{len(PACKAGES)} packages, later jobs",
                spread(found[len(PACKAGES)], digits=2),
                f"{median(found[len(PACKAGES)]) - least:.2f}",
                f"< {GOAL}",
            ],
        ],
    )
    job = submit(PACKAGES[:-1], learners=LEARNERS, cpus=0.01, memory="64 MiB").wait(timeout=1800)
    ran = {line.learner for line in job.logs()}
    told = [event.message for event in job.events() if event.kind == "packages"]
    show(
        f"{LEARNERS} learners with packages that nobody has built",
        ["learners that ran", "builds", "goal"],
        [[str(len(ran)), str(sum("builds them" in message for message in told)), "1"]],
    )
