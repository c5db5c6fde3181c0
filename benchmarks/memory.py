"""How much memory each kind of process takes at rest, after it has worked a little.

PSS counts a page that several processes share as a part for each; RSS counts it whole for each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from tests.e2e.stack import Stack, eventually, manifest
from tests.processes import all_processes

from benchmarks.table import median, show, spread
from weft_workers import sweeper

MIB = 1 << 20
SECONDS = 10
"""How long the processes rest before they are measured."""
REQUESTS = 200
_KINDS = {"weft-api": "api", "weft-worker": "worker", sweeper.NAME: "sweeper"}
"""By the name of the process."""
_GOALS = {"api": 130, "sweeper": 90, "agent": 40}
"""MiB."""


def measure(stack: Stack, folder: Path) -> None:
    job = stack.train(manifest("sleep 3600"), None)
    eventually(lambda: job.refresh().state == "PROCESSING", "the job runs")
    client = stack.client
    for _ in range(REQUESTS):
        client.jobs.list(limit=5)
        job.refresh()
    time.sleep(SECONDS)
    rows = []
    for kind, found in by_kind(stack).items():
        full = [process.memory_full_info() for process in found]
        pss = [info.pss / MIB for info in full]
        goal = _GOALS.get(kind)
        rows.append(
            [
                f"{kind}, {len(found)} processes" if len(found) > 1 else kind,
                spread(pss, digits=0),
                spread([info.rss / MIB for info in full], digits=0),
                f"< {goal} MiB" if goal else "",
                ("yes" if median(pss) < goal else "no") if goal else "",
            ]
        )
    job.delete()
    show(
        f"Memory at rest, after {REQUESTS} requests and a job's start, MiB: median (min to max)",
        ["what", "PSS", "RSS", "goal", "met by PSS"],
        rows,
    )


def by_kind(stack: Stack) -> dict[str, list[psutil.Process]]:
    """The processes of a stack that are Weft's own, by what they are: `api`, `worker`, `sweeper`, `agent`."""
    found: dict[str, list[psutil.Process]] = {}
    for process in _processes(stack):
        with suppress(psutil.Error):  # it has just ended
            kind = _KINDS.get(process.name()) or ("agent" if "weft_trainer" in process.cmdline() else None)
            if kind is not None:
                found.setdefault(kind, []).append(process)
    return found


def _processes(stack: Stack) -> Iterator[psutil.Process]:
    """All processes that the stack started, also those that live on their own. A fork shows the environment of the
    process that it is a fork of, but works in a folder of its own."""
    home = str(stack.home)
    for process in all_processes():
        try:
            where = [process.cwd(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(home in value for value in where):
            yield process
