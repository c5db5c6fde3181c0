"""This learner's address and ports, as its peers reach them."""

from __future__ import annotations

import contextlib
import random
import socket
import urllib.parse

# Below the kernel's range for outgoing connections (32768 and up), so that no connection takes a port by chance.
_RANGE = (20_000, 32_000)


def own_address(api_url: str) -> str:
    """The address of the interface that routes to the API; loopback for an API on loopback."""
    parts = urllib.parse.urlsplit(api_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)
        # 'localhost' may be ::1 first, and the gang's ports are IPv4's where there is any.
        family, kind, _, _, target = sorted(found, key=lambda info: info[0] != socket.AF_INET)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # UDP: chooses the route and sends nothing
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return "127.0.0.1"


class ReservedPorts:
    """Free TCP ports, which no other learner of this machine takes until ``close``, or the end of a ``with`` block.

    Something listens on none of them. They are bound until ``release``, right before the processes start that use them.
    From then on, until a process binds its port, the port is free for the kernel, and only claimed among learners.

    Args:
        count: how many.
        last: the last one's number, if it must be that one; any other, if something listens there.
    """

    def __init__(self, count: int, last: int | None = None) -> None:
        chosen = None
        if last is not None:
            with contextlib.suppress(OSError):
                chosen = _Held(last)
        self._held: list[_Held] = []
        while len(self._held) < count - (chosen is not None):
            with contextlib.suppress(OSError):
                self._held.append(_Held(random.randrange(*_RANGE)))  # noqa: S311
        if chosen is not None:
            self._held.append(chosen)
        self.numbers: tuple[int, ...] = tuple(held.port for held in self._held)

    def release(self) -> None:
        for held in self._held:
            held.bound.close()

    def close(self) -> None:
        self.release()
        for held in self._held:
            held.claim.close()

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Held:
    """A port that this process has bound and claimed. Raises: OSError, if another process has it.

    The claim is the port's number as a Unix socket's abstract name. Like the port, such a name belongs to a network
    namespace, and goes with the process.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.claim = _bind(socket.AF_UNIX, f"\0weft-port-{port}")
        try:
            self.bound = _bind(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104
        except OSError:
            self.claim.close()
            raise


def _bind(family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def takes_connections(address: str, port: int, timeout: float = 1.0) -> bool:
    try:
        with socket.create_connection((address, port), timeout):
            return True
    except OSError:
        return False


def interface_of(address: str) -> str | None:
    """The name of the local interface that has ``address``."""
    import psutil  # 20 ms that only gangs need

    for name, addresses in psutil.net_if_addrs().items():
        if any(known.address == address for known in addresses):
            return name
    return None
