"""Several looks at the program's processes, some seconds apart: whether they stand still.

A gang that hangs in a collective may be as busy as a gang that trains: a rank that waits may poll. What differs is that
the stacks of a gang that hangs stay the same, the counts of its collectives too, and the ranks that are missing use no
processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from weft_trainer.program import stacks

LOOKS = 3
_SECONDS = 5.0
"""From look to look."""


def look(
    ignore: Collection[int], recorders: Path, code: Path, wait: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """The report of the last look (``weft_core.hangs.report``), with ``still`` and ``cpu_percent`` of each process.

    Args:
        ignore: the agent's own processes.
        recorders: the folder in which processes show their flight recorders.
        code: the folder of the user's code.
        wait: for so many seconds.
    """
    seen: dict[int, Any] = {}
    moved: set[int] = set()
    used: dict[int, float] = {}
    began = time.monotonic()
    for n in range(LOOKS):
        if n:
            wait(_SECONDS)
        report = stacks.take(ignore, recorders, code).report
        now = {process["pid"]: _state(process) for process in report["processes"]}
        if n:
            moved |= {pid for pid, state in now.items() if seen.get(pid) != state}
        else:  # from here on: the first look's own work is over
            began, used = time.monotonic(), {pid: _seconds(pid) for pid in now}
        seen = now
    span = max(time.monotonic() - began, 1e-3)
    for process in report["processes"]:
        pid = process["pid"]
        process["still"] = pid not in moved
        process["cpu_percent"] = round(100 * max(0.0, _seconds(pid) - used.get(pid, 0.0)) / span, 1)
    return report


def _state(process: Mapping[str, Any]) -> Any:
    """What changes when a program gets on."""
    return tuple(process.get(name) for name in ("threads", "collectives", "finished", "submitted"))


def _seconds(pid: int) -> float:
    """The processor time of a process. Horovod's own threads poll all the time, and say nothing about the program."""
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        if _has_horovod(process):
            return sum(thread.user_time + thread.system_time for thread in process.threads() if thread.id == pid)
        times = process.cpu_times()
        return times.user + times.system
    return 0.0


def _has_horovod(process: psutil.Process) -> bool:
    return any("/horovod/" in mapped.path for mapped in process.memory_maps(grouped=True))
