"""``python -m weft_trainer.launchers.ray_command ADDRESS PORT [COMMAND]``: a learner's process while the command runs.

With COMMAND, on learner 1: run it as soon as all Ray nodes have joined, and report its end to the gate at ADDRESS:PORT.
Without: wait for its end, so that this learner's Ray node stays there for as long as the command needs it, also while
it saves something after a SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

from weft_trainer.launchers.base import end_like, shell
from weft_trainer.launchers.ray_gate import GateClient, GateClosed
from weft_trainer.program.endings import STOPPED_CODE

_GATE_SECONDS = 560.0
"""How long learner 1 may take to serve the gate; its code and data come first. Somewhat more than learner 1 then waits
for the other learners, so that learner 1 reports which of them are missing."""
_BLAME_SECONDS = 15.0
"""Seconds within which a failure of Ray must be found; after that, the command is blamed for its failure."""
_STOP_SECONDS = 60.0
"""Seconds from a failure of learner 1 to the stop that follows from it."""


class _Stopped(Exception):
    pass


class _Stop:
    """SIGTERM, noticed and otherwise without effect on this process; the command's own process gets it, too."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        signal.signal(signal.SIGTERM, self._request)

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        self.requested.set()

    def check(self) -> None:
        if self.requested.is_set():
            raise _Stopped


def run(gate: GateClient, command: str, stop: _Stop) -> int:
    """The command's exit code; negative: killed by that signal."""
    answered = threading.Event()

    def wait() -> None:
        try:
            gate.ready(lambda: None)
        except GateClosed:
            time.sleep(_BLAME_SECONDS)  # the helper that served it says why, and the agent ends this process
        answered.set()

    threading.Thread(target=wait, daemon=True).start()
    while not answered.wait(0.05):
        if stop.requested.is_set():
            return STOPPED_CODE
    code = subprocess.Popen(shell(command)).wait()
    try:
        gate.ended(code)
    except GateClosed:
        time.sleep(_BLAME_SECONDS)
    return code


def wait(gate: GateClient, stop: _Stop) -> int:
    end = time.monotonic() + _GATE_SECONDS

    def checkpoint() -> None:
        stop.check()
        if time.monotonic() > end:
            raise GateClosed("it did not open")

    try:
        code = gate.end(checkpoint)
        if code == 0:
            return 0
        reason = f"the command, which runs on learner 1, has ended with exit code {code}"
    except _Stopped:
        return STOPPED_CODE
    except GateClosed as error:
        reason = f"the head of the job's Ray cluster, on learner 1, is gone: {error}"
    # Learner 1 reports the cause, and the stop that follows ends this learner.
    if stop.requested.wait(_STOP_SECONDS):
        return STOPPED_CODE
    print(reason, flush=True)
    return 1


def main(arguments: list[str]) -> None:
    address, port, *command = arguments
    stop = _Stop()
    gate = GateClient(address, int(port), os.environ["RAY_AUTH_TOKEN"])
    end_like(run(gate, command[0], stop) if command else wait(gate, stop))


if __name__ == "__main__":
    main(sys.argv[1:])
