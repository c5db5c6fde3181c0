"""Starts the API, the worker and the preparation of the database as forks of one process that has loaded them all.

The libraries that they share are loaded once, while the servers start, and take memory once. The fork server ends when
the stack has started: a part that is started again later is a program of its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from weft_core import processes
from weft_embedded import guard

_LARGEST = 1 << 20  # bytes of a request, most of which is the environment
_READY = b"ready"


@dataclass(frozen=True)
class _Request:
    module: str
    """Its ``main()`` returns the exit code."""
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    death_signal: int


class Child:
    """A child of this process that another process has started: as much of ``Popen`` as a part needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        code = self._wait(0)
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # until it has been waited for, its pid is its own
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """The fork server as its supervisor sees it.

    Args:
        modules: what it loads, and can start.
        environment: its own, and what ``/proc/PID/environ`` shows of its forks.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._modules = set(modules)
        tied = [guard.__file__, str(os.getpid()), str(int(signal.SIGKILL)), "same"]
        own = ["-m", __name__, str(theirs.fileno()), *modules]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", *tied, sys.executable, *own],
                env={**environment, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads can't be forked safely
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a part that can't be loaded says so when it is started as a program
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    @property
    def is_loading(self) -> bool:
        """Whether it may still come to serve."""
        return self._process.poll() is None and not select.select([self._socket], [], [], 0)[0]

    def fork(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, death_signal: int,
        output: int, errors: int,
    ) -> Child | None:  # fmt: skip
        """Start ``python -m MODULE ARGUMENTS``, in a session of its own, as a child of this process. Call it from the
        main thread, with which the child then dies.

        Args:
            death_signal: what the child gets when this process dies.
            output: the descriptor for its output.
            errors: the same for its error output.

        Returns: the child; None: the fork server can't, so it has to be started as a program.
        """
        if module not in self._modules:
            return None
        request = _Request(module, list(arguments), dict(environment), str(folder), int(death_signal))
        # The fork's parent, a fork itself, ends at once. This makes the fork a child of this process.
        processes.adopt_orphans()
        try:
            if self._socket.recv(64) != _READY:
                return None
            socket.send_fds(self._socket, [json.dumps(asdict(request)).encode()], [output, errors])
            pid = self._socket.recv(64)
            return Child(int(pid)) if pid else None
        except OSError:  # it has died
            return None
        finally:
            processes.adopt_orphans(False)

    def close(self) -> None:
        """End it. Its forks go on."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _serve(connection: socket.socket, supervisor: int) -> _Request | None:
    """Fork for each request. Returns in each fork, with its request, and at the end of the connection, without any."""
    while True:
        connection.send(_READY)
        message, descriptors, _, _ = socket.recv_fds(connection, _LARGEST, 2)
        if not message:
            return None
        pids, send_pid = os.pipe()
        goes, let_go = os.pipe()
        parent = os.fork()
        if not parent:
            fork = os.fork()
            if fork:
                os.write(send_pid, str(fork).encode())
                os._exit(0)
            os.close(let_go)
            os.read(goes, 1)
            for descriptor in (pids, send_pid, goes):
                os.close(descriptor)
            connection.close()
            request = _Request(**json.loads(message))
            _take_place(request, descriptors, supervisor)
            return request
        os.waitpid(parent, 0)  # from now on, the fork is the supervisor's child
        connection.send(os.read(pids, 64))
        for descriptor in (pids, send_pid, goes, let_go, *descriptors):
            os.close(descriptor)


def _take_place(request: _Request, descriptors: Sequence[int], supervisor: int) -> None:
    """Become what a program of its own would be."""
    os.setsid()
    processes.die_with_parent(supervisor, signal.Signals(request.death_signal))
    for target, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv = [request.module, *request.arguments]


def _main() -> int:
    connection, supervisor = socket.socket(fileno=int(sys.argv[1])), os.getppid()
    modules = {name: importlib.import_module(name) for name in sys.argv[2:]}
    gc.freeze()  # collections would write into memory that the forks share
    if len(os.listdir("/proc/self/task")) > 1:
        return 0
    with contextlib.suppress(BrokenPipeError):
        request = _serve(connection, supervisor)
        if request is not None:
            return int(modules[request.module].main())
    return 0


if __name__ == "__main__":
    gc.disable()  # until a fork's main()
    sys.exit(_main())
