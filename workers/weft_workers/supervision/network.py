"""A network of its own for each gang: its learners reach each other, other machines, and of this machine only the
places that the engine lists.

The gang's namespace has loopback and the machine's addresses, at which its learners find each other with no detour. All
other connections lead to a relay, a process in the machine's network, which makes them on behalf of the learners: to
other machines, and to the places of this machine that the engine lists. Queries to name servers go the same way. All
other packets are dropped.

This takes user and network namespaces and the kernel's packet rules (nf_tables). It takes no rights over the machine,
and no other program. The standard library only.

    python -m weft_workers.supervision.network     exit code 0: this machine lets this user make one; else the reason is
                                                   on standard error
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import TYPE_CHECKING, NamedTuple

from weft_core import processes
from weft_workers.supervision import netlink, relay, sandbox, spawn

if TYPE_CHECKING:
    from collections.abc import Sequence

PUBLISHED = (20_000, 32_000)
"""The machine's ports that are taken for learners: below the kernel's range for outgoing connections."""
_PORT = 1
"""The relay's, in the namespace. No learner can listen there: it is a port for the owner of the namespace."""


class Network(NamedTuple):
    """Descriptors: of a gang's namespaces, and of the sockets in them at which a relay hears."""

    namespaces: sandbox.Shared
    streams: tuple[int, ...]
    datagrams: tuple[int, ...]


def make(places: Sequence[netlink.Endpoint]) -> Network:
    """A network with nobody in it. It lasts as long as its descriptors are open somewhere.

    Args:
        places: those of this machine that it leads to.

    Raises:
        OSError: the machine can't do this.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        child = os.fork()
        if child == 0:
            _make(theirs, places)
        theirs.close()
        try:
            said, found, _, _ = socket.recv_fds(ours, 1024, 8)
        finally:
            os.waitpid(child, 0)
    if not found:
        number, _, what = said.decode().partition(" ")
        raise OSError(int(number or 5), what or "the process that makes the network has died")
    for descriptor in found:  # not for what this process starts; recv_fds of Python 3.11 ignores its flags
        os.set_inheritable(descriptor, False)
    user, net, *sockets = found
    return Network(sandbox.Shared(user, net), tuple(sockets[::2]), tuple(sockets[1::2]))


def _make(answer: socket.socket, places: Sequence[netlink.Endpoint]) -> None:
    """The child of :func:`make`, which ends."""
    try:
        own = netlink.addresses()
        sandbox.unshare_network()
        netlink.set_up(own, places, _PORT)
        sockets = [*_listen(socket.AF_INET)]
        if any(":" in address for address in own):
            sockets += _listen(socket.AF_INET6)
        namespaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
        socket.send_fds(answer, [b"!"], [*namespaces, *(each.fileno() for each in sockets)])
        os._exit(0)
    except OSError as error:
        answer.send(f"{error.errno or 5} {error.strerror or error}".encode())
    finally:
        os._exit(1)


def _listen(family: socket.AddressFamily) -> tuple[socket.socket, socket.socket]:
    stream = socket.socket(family, socket.SOCK_STREAM)
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        for each in (stream, datagrams):
            each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    else:
        datagrams.setsockopt(socket.IPPROTO_IP, relay.IP_PKTINFO, 1)
    stream.bind(("", _PORT))
    stream.listen(1024)
    datagrams.bind(("", _PORT))
    return stream, datagrams


def start_relay(network: Network, places: Sequence[netlink.Endpoint]) -> int:
    """Start the relay of a network, a child that dies with this process; its pid. Raises: OSError."""
    parent = os.getpid()

    def relay_all() -> None:
        processes.die_with_parent(parent)
        streams = [socket.socket(fileno=descriptor) for descriptor in network.streams]
        datagrams = [socket.socket(fileno=descriptor) for descriptor in network.datagrams]
        relay.Relay(streams, datagrams, places).run()

    return os.fork() or spawn.end_with(relay_all)


def listen() -> socket.socket:
    """At a free port of the machine's loopback, for a learner. Raises: OSError: there is none."""
    for _ in range(1000):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            first, end = PUBLISHED
            listener.bind(("127.0.0.1", first + int.from_bytes(os.urandom(4)) % (end - first)))
            listener.listen(128)
            return listener
        except OSError:
            listener.close()
    raise OSError(errno.EADDRINUSE, "no port is free for a learner")


def start_publisher(network: Network, listeners: Sequence[socket.socket]) -> int:
    """Start a child, which dies with this process, that leads connections at ``listeners`` to the same port in the
    network; its pid. Raises: OSError."""
    parent = os.getpid()

    def publish() -> None:
        processes.die_with_parent(parent)
        sandbox.join(network.namespaces)
        relay.Publisher(listeners).run()

    return os.fork() or spawn.end_with(publish)


def main() -> None:
    """Make one for a moment."""
    try:
        network = make([netlink.Endpoint("127.0.0.1", 1)])
    except OSError as error:
        sys.exit(error.strerror)
    sandbox.main(network.namespaces)
