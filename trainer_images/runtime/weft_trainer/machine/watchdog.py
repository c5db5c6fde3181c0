"""A process that survives the agent by a moment: if the agent is killed, it kills the processes that the agent
started."""

from __future__ import annotations

import contextlib
import os
import signal


class Watchdog:
    """Forked before the agent has any thread. It holds the other end of a pipe, whose end of file means that the agent
    is gone, for any reason. Process groups are announced as ``+<pgid>`` and taken back as ``-<pgid>``."""

    def __init__(self) -> None:
        read_end, self._pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            _watch(read_end)
            os._exit(0)
        os.close(read_end)
        self.own: set[int] = {self.pid}
        """Processes below the agent that are its own, not the user's."""

    def adopt(self, pid: int) -> None:
        """The agent has started a process of its own, which leads its group."""
        self.own.add(pid)
        self.guard(pid)

    def disown(self, pid: int) -> None:
        """Such a process has been reaped."""
        self.release(pid)
        self.own.discard(pid)

    def guard(self, group: int) -> None:
        self._tell(b"+%d\n" % group)

    def release(self, group: int) -> None:
        self._tell(b"-%d\n" % group)

    def _tell(self, news: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it was killed: work goes on without it
            os.write(self._pipe, news)

    def end(self) -> None:
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _watch(pipe: int) -> None:
    os.setsid()  # signals to the agent's group or session are not meant for this process
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    with os.fdopen(pipe, "rb") as announcements:
        for line in announcements:
            if line.endswith(b"\n"):
                group = int(line[1:])
                (groups.add if line.startswith(b"+") else groups.discard)(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
