"""The orderly end of a machine's stack: learners are interrupted, and their jobs go on later without using up a
retry."""

from __future__ import annotations

import time
from pathlib import Path

from weft_workers.engines.local.preparing import end_builds
from weft_workers.supervision import files
from weft_workers.supervision.run import RunFolder

_PATIENCE = 30.0  # seconds after the grace that the end of killed processes may take


def interrupt(home: Path, grace: float) -> tuple[list[str], list[str]]:
    """Interrupt all living runs of ``home`` and wait; the names of those that ended, and of those that did not. Builds
    that only this home's jobs wait for end, too.

    The workers are to be stopped before, so that they launch nothing meanwhile.
    """
    end_builds(home, _PATIENCE)
    runs = home.expanduser().absolute() / "runs"
    if not runs.is_dir():
        return [], []
    waiting = []
    with files.locked(runs / ".lock"):
        for path in sorted(runs.iterdir()):
            run = RunFolder(path)
            if path.name.startswith(".") or not path.is_dir():
                continue
            if run.alive() or not run.started():
                run.request_interrupt(grace)
                waiting.append(run)
    deadline = time.monotonic() + grace + _PATIENCE
    while any(run.alive() for run in waiting) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [run.name for run in waiting if run.alive()]
    return [run.name for run in waiting if run.name not in left], left
