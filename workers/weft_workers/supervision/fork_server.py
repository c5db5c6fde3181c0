"""Starts the supervisors of gangs as forks of one process that has loaded their modules.

    fork_server SOCKET_DESCRIPTOR

A fork takes ten milliseconds, and shares its memory with the others. A program of its own takes a tenth of a second of
a processor, most of it for imports. The fork server ends with the process that it works for.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import sys
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from weft_workers.supervision import spawn
from weft_workers.supervision.run import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST = 1 << 16
"""The longest path of a run's folder, in bytes."""
_DONE = b"."


class ForkServer:
    """The fork server as an engine sees it. It starts when it is first needed, anew in each fork of this process.

    Args:
        environment: of all supervisors.
        patience: how many seconds an answer may take.
    """

    def __init__(self, environment: Mapping[str, str], patience: float) -> None:
        self._environment = environment
        self._patience = patience
        self._connection: socket.socket | None = None
        self._owner = 0  # a pid

    def start(self, run: RunFolder, lock: int) -> None:
        """Have the supervisor of a run started, which inherits ``lock``, the run's.

        The fork server may die at any moment, before or after the start. The run's folder and its lock tell the caller
        whether there is a supervisor; if not, the caller may call this again.
        """
        if self._connection is None or self._owner != os.getpid():
            self._connection, self._owner = self._connect(run), os.getpid()
        try:
            socket.send_fds(self._connection, [os.fsencode(run.path)], [lock])
            answered = self._connection.recv(len(_DONE)) == _DONE
        except OSError:
            answered = False
        if not answered:
            self._connection.close()
            self._connection = None

    def _connect(self, run: RunFolder) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            spawn.detached(
                "weft_workers.supervision.fork_server",
                [str(theirs.fileno())],
                log=run.log,
                environment=self._environment,
                keep=[theirs.fileno()],
            )
        ours.settimeout(self._patience)
        weakref.finalize(self, ours.close)
        return ours


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    spawn.leave_parent(keep=[connection.fileno()])
    from weft_workers.supervision import gang  # only now: the starter waits until this process has left it

    gc.freeze()  # collections would write into memory that the forks share
    while True:
        path, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 1)
        if not path:
            return
        [lock] = descriptors
        if (child := os.fork()) == 0:
            connection.close()
            spawn.end_with(partial(_become_supervisor, RunFolder(Path(os.fsdecode(path))), lock, gang.supervise))
        os.close(lock)
        os.waitpid(child, 0)  # until it has left this process
        with suppress(OSError):  # nobody is left to read it
            connection.send(_DONE)


def _become_supervisor(run: RunFolder, lock: int, supervise: Callable[[RunFolder], None]) -> None:
    """Become what a program of its own would be: no process before it, and ``lock`` is all that it holds."""
    spawn.leave_parent(keep=[lock])
    os.setsid()
    log = os.open(run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    spawn.default_signals()
    _show_command("weft_workers.supervision.gang", str(run.path))
    supervise(run)


def _show_command(*words: str) -> None:
    """Let ``ps`` and /proc show ``words`` as the command of this process, as far as they fit where the words of its
    start lie in its memory. The kernel reads them there (man 5 proc, arg_start)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    command = b"".join(os.fsencode(word) + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, command.ljust(end - start, b"\0"), end - start)
