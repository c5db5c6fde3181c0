"""Starts the supervisors of gangs as forks of one process that has loaded their modules, and those of the agents.

    fork_server SOCKET_DESCRIPTOR

A fork takes ten milliseconds, and shares its memory with the others. A program of its own takes a tenth of a second of
a processor for a supervisor, and more for an agent, most of it for imports. The fork server ends with the process that
it works for.
"""

from __future__ import annotations

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
"""The longest request, in bytes."""
_AND = b"\0"
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

    def start(self, run: RunFolder, lock: int, agent: Path) -> None:
        """Have the supervisor of a run started, which inherits ``lock``, the run's.

        Args:
            agent: the folder of the code of its learners' agents.

        The fork server may die at any moment, before or after the start. The run's folder and its lock tell the caller
        whether there is a supervisor; if not, the caller may call this again.
        """
        if self._connection is None or self._owner != os.getpid():
            self._connection, self._owner = self._connect(run), os.getpid()
        try:
            socket.send_fds(self._connection, [os.fsencode(run.path), _AND, os.fsencode(agent)], [lock])
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
    from weft_workers.supervision import agents, gang  # only now: the starter waits until this process has left it

    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 1)
        if not request:
            return
        [lock] = descriptors
        path, agent = request.split(_AND)
        agents.load(os.fsdecode(agent))
        gc.freeze()  # collections would write into memory that the forks share
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
    spawn.show_command(("weft_workers.supervision.gang", str(run.path)))
    supervise(run)
