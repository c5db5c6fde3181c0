"""How long the shortest commands take, beside a Python that does nothing and the one request that they send.

The processor time is the command's own; the wall time is what a user waits.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
from tests.e2e.stack import Stack, manifest

from benchmarks.table import median, show, spread

GOAL = 0.25  # seconds
ROUNDS = 15
JOBS = 20
_COMMANDS = {"version": "/healthz", "list": f"/api/v1/jobs?limit={JOBS + 1}"}
"""The commands, and the request of each."""


def measure(stack: Stack, folder: Path) -> None:
    profile = tomllib.loads(stack.profile.read_text())["profiles"]["default"]
    cpus = stack.json("engines")[0]["capacity"]["cpus"]
    stack.train(manifest("sleep 3600", cpus=cpus), None)
    for _ in range(JOBS - 1):
        stack.train(manifest("true", cpus=cpus), None)
    here = Path(sys.executable).parent
    nothing: list[float] = []
    requests, walls, processor = (_per_command() for _ in range(3))
    with httpx.Client(base_url=profile["url"], headers={"Authorization": f"Bearer {profile['token']}"}) as client:
        for number in range(ROUNDS + 1):
            wall, _ = timed([str(here / "python"), "-c", "pass"], stack.environment)
            nothing.append(wall)
            for command, path in _COMMANDS.items():
                begun = time.perf_counter()
                client.get(path).raise_for_status()
                asked = time.perf_counter() - begun
                wall, used = timed([str(here / "weft"), command], stack.environment)
                if number:  # the first ones compile and fill caches
                    requests[command].append(asked)
                    walls[command].append(wall)
                    processor[command].append(used)
    for job in stack.client.jobs.list():
        job.delete()
    rows = [["python -c pass", spread(nothing, digits=2), "", "", "", ""]]
    for command in _COMMANDS:
        least = median(nothing) + median(requests[command])
        rows.append(
            [
                f"weft {command}",
                spread(walls[command], digits=2),
                spread(processor[command], digits=2),
                f"{median(walls[command]) - least:.2f}",
                f"{median(walls[command]) / least:.1f}",
                f"< {GOAL} s more",
            ]
        )
    show(
        f"Commands: {ROUNDS} times, seconds: median (min to max)",
        ["what", "wall", "processor", "more than nothing and the request", "ratio", "goal"],
        rows,
    )


def _per_command() -> dict[str, list[float]]:
    return {command: [] for command in _COMMANDS}


def timed(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> tuple[float, float]:
    """Seconds of wall time and of processor time that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
