"""``weft down``: ending a stack from outside, whether its supervisor lives or not."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

from weft_embedded.home import Home, HomeError
from weft_embedded.processes import ProcessId

if TYPE_CHECKING:
    from weft_embedded.stack import Stack

END_ORDER = ("worker", "api", "gate", "s3", "redis", "postgres")
_ORPHANS_GRACE = 10.0  # without a service learners can't store anything, so there is little to wait for

_PATIENCE = 15.0


def end_running(home: Home, grace: float | None) -> bool:
    """Ask the supervisor to end everything, wait, and print what it ends. Returns whether it ended in order.

    Raises:
        HomeError: a process holds the home and does not identify itself.
    """
    if grace is not None:
        home.leave_grace(grace)
    supervisor = _ask(home)
    told: set[str] = set()
    lives = True
    while lives:
        lives = home.locked()  # read before the parts' states, so that the end of the last parts is printed, too
        now = home.load_state()
        if now.doing and now.doing not in told:
            told.add(now.doing)
            print(now.doing, flush=True)
        for part in sorted(now.parts, key=lambda part: END_ORDER.index(part.name)):
            if part.state == "stopped" and part.name not in told:
                told.add(part.name)
                print(f"{part.name} is stopped", flush=True)
        time.sleep(0.1)
    if supervisor is not None:
        supervisor.wait_gone(_PATIENCE)  # it gives the home up first, and then ends
    return all(part.state == "stopped" for part in home.load_state().parts)


def _ask(home: Home) -> ProcessId | None:
    """Ask the supervisor to end. A supervisor that has only just taken the home identifies itself in a moment."""
    deadline = time.monotonic() + _PATIENCE
    while home.locked():
        supervisor = home.load_state().supervisor
        if supervisor is not None:
            supervisor.signal(signal.SIGTERM)
            return supervisor
        if time.monotonic() > deadline:
            raise HomeError(
                f"a process holds {home.path} and does not identify itself: `fuser {home.run}/lock` shows which it is"
            )
        time.sleep(0.1)
    return None


def end_leftovers(stack: Stack, grace: float | None) -> list[str]:
    """End what a supervisor that was killed left behind; returns what there was."""
    if stack.has_runs():
        seconds = min(_ORPHANS_GRACE, _ORPHANS_GRACE if grace is None else grace)
        subprocess.run(stack.interrupt_command(seconds), env=stack.environment(), check=False)
    return [part.name for part in stack.leftovers() if part.end_leftover()]
