"""The sweeper beside a worker's main process: started again when it dies."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
from typing import NoReturn

import structlog

from weft_workers import sweeper

log = structlog.get_logger(__name__)

_RESTART_AFTER = 1.0  # seconds
_PATIENCE = 10.0  # seconds that the sweeper may take to end


class SweeperProcess:
    """The first sweeper is a fork of this process, which has loaded its modules already. A process that has more than
    one thread can't be forked safely: from then on the sweeper is a program of its own."""

    def __init__(self) -> None:
        self._ending, self._asked_to_end = os.pipe()
        # The kernel ties the sweeper's life to the thread that started it, so this one lives as long as the worker.
        self._keeper = threading.Thread(target=self._keep, name="sweeper", daemon=True)
        self._first: int | None = None

    def start(self) -> None:
        """Call it from the main thread."""
        alone = len(os.listdir("/proc/self/task")) == 1
        self._first = _fork() if alone else None
        self._keeper.start()

    def stop(self) -> None:
        """End it: in order, or else by force."""
        os.write(self._asked_to_end, b".")
        self._keeper.join(_PATIENCE + 5)

    def _keep(self) -> None:
        pid = self._first or _spawn()
        while not self._is_ending(pid):
            _, status = os.waitpid(pid, 0)
            exit_code = os.waitstatus_to_exitcode(status)
            log.warning("the sweeper ended; starting it again", exit_code=exit_code)
            if select.select([self._ending], [], [], _RESTART_AFTER)[0]:
                return
            pid = _spawn()
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _is_ending(self, pid: int) -> bool:
        """Wait until the sweeper has ended, or the worker ends it. Returns whether it is the worker."""
        ended = os.pidfd_open(pid)  # nobody else waits for this child, so its pid is its own until then
        try:
            readable, _, _ = select.select([self._ending, ended], [], [])
        finally:
            os.close(ended)
        return self._ending in readable


def _fork() -> int:
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork() or _become_sweeper(parent)


def _become_sweeper(parent: int) -> NoReturn:
    status = 1
    try:
        status = sweeper.main(parent)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _spawn() -> int:
    command = [sys.executable, "-m", sweeper.__name__, str(os.getpid())]
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=[nothing])
