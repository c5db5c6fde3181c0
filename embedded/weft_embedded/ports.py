"""The ports of the parts, and the process that has one when it is taken."""

from __future__ import annotations

import contextlib
import random
import socket
from functools import partial

HOST = "127.0.0.1"
_FIRST, _LAST = 20_000, 32_000  # below what the kernel gives to outgoing connections
_KEPT: set[int] = set()
"""Ports of parts that may be yet to start, so that nothing listens there."""


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As servers do: a port whose last connections are only being waited out is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def keep(*given: int) -> None:
    """Parts of this process's stack have these ports, or will have them: :func:`pick` gives them to no other part."""
    _KEPT.update(given)


def pick(host: str = HOST) -> int:
    """A port that nothing listens at, outside the range of outgoing connections. Each call gives another port."""
    candidates = iter(partial(random.randint, _FIRST, _LAST), None)
    port = next(port for port in candidates if port not in _KEPT and is_free(port, host))
    keep(port)
    return port


def holder(port: int) -> str:
    """The process that listens at ``port``, as far as it can be read: ``pid 12 (nginx)``."""
    import psutil  # only here, as most stacks find their ports free

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                return f"pid {connection.pid} ({psutil.Process(connection.pid).name()})"
    return "another program"
