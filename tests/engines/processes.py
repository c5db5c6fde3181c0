"""The processes of a run, as this machine sees them; the learners of every engine of the suite are on it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
from tests.engines.learners import MARK
from tests.processes import all_processes

from weft_core.launch import LaunchSpec


def of(specs: Iterable[LaunchSpec]) -> list[str]:
    """All processes with a run's token or mark in their environment: agents, and the processes they started."""
    marks = [mark for spec in specs for mark in (f"{MARK}={spec.run_name}\0".encode(), f"={spec.token}\0".encode())]
    found = []
    for pid in psutil.pids():
        with suppress(OSError, psutil.Error):  # a short-lived process; a zombie has no environment any more
            environment = Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
            if any(mark in environment for mark in marks):
                found.append(f"process {pid}: {' '.join(psutil.Process(pid).cmdline() or ['?'])[:100]}")
    return found


def agent(run_name: str, rank: int) -> psutil.Process:
    """The agent of a learner whose command runs: the nearest of its parents that is one."""
    for process in all_processes(["environ"]):
        environment = process.info["environ"] or {}
        if environment.get(MARK) == run_name and environment.get("WEFT_RANK") == str(rank):
            with suppress(psutil.NoSuchProcess):  # one of a moment
                for parent in process.parents():
                    if "weft_trainer" in " ".join(parent.cmdline()):
                        return parent
    raise AssertionError(f"no agent of learner {rank} of {run_name} is on this machine")


def that_show(secret: str) -> list[str]:
    """Command lines, which everybody on the machine can read, that hold a secret."""
    return [
        " ".join(process.info["cmdline"])
        for process in all_processes(["cmdline"])
        if secret in " ".join(process.info["cmdline"] or [])
    ]
