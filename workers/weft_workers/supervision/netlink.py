"""Weft's requests to the kernel's network, as netlink messages (man 7 netlink, man 7 rtnetlink, nf_tables). They need
no program that a machine may lack, and only the standard library."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ROUTE, _NETFILTER = 0, 12
_PROTOCOLS = {_ROUTE: "addresses and routes", _NETFILTER: "packet rules (nf_tables)"}
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP, _CREATE, _EXCLUSIVE, _APPEND = 0x1, 0x4, 0x300, 0x400, 0x200, 0x800
_NEWLINK, _NEWADDR, _GETADDR, _NEWROUTE, _GETROUTE = 16, 20, 22, 24, 26
_BATCH_BEGIN, _BATCH_END = 16, 17
_UNICAST = 1
_SECONDS = 10.0
_FAMILY = {4: socket.AF_INET, 16: socket.AF_INET6}


class Endpoint(NamedTuple):
    """A TCP port at an address."""

    address: str
    port: int


def addresses() -> list[str]:
    """The addresses of the machine's interfaces, without those of loopback and the link-local ones."""
    found = []
    for kind, body in _talk(_ROUTE, [_Message(_GETADDR, bytes(8), _DUMP)]):
        if kind == _NEWADDR:
            family, _, _, scope, _ = struct.unpack_from("BBBBI", body)
            named = dict(_attributes(body[8:]))
            packed = named.get(2) or named.get(1)  # a point-to-point link has another one at its other end
            if packed and scope == 0 and family in _FAMILY.values():
                found.append(socket.inet_ntop(family, packed))
    return sorted(set(found))


def is_elsewhere(address: str) -> bool:
    """Whether an address belongs to another machine: not to this one, and to no group of machines.

    Raises:
        OSError: there is no way to it.
    """
    packed = _packed(address)
    asked = struct.pack("BBBBBBBBI", _FAMILY[len(packed)], len(packed) * 8, 0, 0, 0, 0, 0, 0, 0) + _attribute(1, packed)
    [(_, body)] = _talk(_ROUTE, [_Message(_GETROUTE, asked)])
    return bool(body[7] == _UNICAST)


def set_up(own: Sequence[str], places: Iterable[Endpoint], relay: int) -> None:
    """Set up the network of a namespace that has nothing but loopback yet.

    Its loopback gets the addresses ``own``. TCP connections to these stay in the namespace, except those to ``places``.
    These, the ones to all other addresses, and queries to name servers lead to the port ``relay`` of the namespace.

    Raises:
        OSError: the kernel can't do this.
    """
    lo = socket.if_nametoindex("lo")
    messages = [_Message(_NEWLINK, struct.pack("BxHiII", 0, 0, lo, 1, 1))]
    for packed in map(_packed, own):
        no_detection = 2 if len(packed) == 16 else 0
        head = struct.pack("BBBBI", _FAMILY[len(packed)], len(packed) * 8, no_detection, 0, lo)
        messages.append(_Message(_NEWADDR, head + _attribute(1, packed) + _attribute(2, packed), _CREATE))
    for family in sorted({_FAMILY[len(_packed(address))] for address in own}):
        # A way to everywhere, so that there are packets that the rules can lead elsewhere.
        head = struct.pack("BBBBBBBBI", family, 0, 0, 0, 254, 3, 0, _UNICAST, 0)
        messages.append(_Message(_NEWROUTE, head + _attribute(4, struct.pack("I", lo)), _CREATE | _EXCLUSIVE))
    list(_talk(_ROUTE, messages))
    list(_talk(_NETFILTER, _rules(places, relay), batch=True))


# --- rules (linux/netfilter/nf_tables.h) ---

_TABLE, _CHAIN = b"weft\0", b"out\0"
_TCP, _UDP = b"\x06", b"\x11"
_REGISTER = struct.pack(">I", 8)
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2


def _rules(places: Iterable[Endpoint], relay: int) -> list[_Message]:
    redirect = _immediate(_port(relay)) + _expression("redir", _attribute(1, _REGISTER))
    to_dns = _protocol(_UDP) + _equals(_TRANSPORT_HEADER, 2, _port(53)) + redirect
    accept = _expression("immediate", _attribute(1, bytes(4)) + _nested(2, _nested(2, _attribute(1, _number(1)))))
    # fib daddr type local
    is_own = _expression("fib", _attribute(1, _REGISTER) + _attribute(2, _number(3)) + _attribute(3, _number(2)))
    is_own += _compare(struct.pack("I", 2))
    rules = [to_dns, *(_to_place(place) + redirect for place in places), is_own + accept, _protocol(_TCP) + redirect]
    hook = _nested(4, _attribute(1, _number(3)) + _attribute(2, struct.pack(">i", -100)))  # output, at NAT's priority
    return [
        _netfilter(0, _attribute(1, _TABLE)),
        _netfilter(3, _attribute(1, _TABLE) + _attribute(3, _CHAIN) + hook + _attribute(7, b"nat\0")),
        *(_netfilter(6, _attribute(1, _TABLE) + _attribute(2, _CHAIN) + _nested(4, rule), _APPEND) for rule in rules),
    ]


def _to_place(place: Endpoint) -> bytes:
    packed = _packed(place.address)
    protocol = _expression("meta", _attribute(2, _number(15)) + _attribute(1, _REGISTER))  # nfproto
    protocol += _compare(bytes([_FAMILY[len(packed)]]))
    address = _equals(_NETWORK_HEADER, 16 if len(packed) == 4 else 24, packed)
    return protocol + address + _protocol(_TCP) + _equals(_TRANSPORT_HEADER, 2, _port(place.port))


def _netfilter(kind: int, body: bytes, flags: int = 0) -> _Message:
    return _Message(10 << 8 | kind, struct.pack("BBH", 1, 0, 0) + body, _CREATE | flags)  # 1: IPv4 and IPv6


def _expression(name: str, content: bytes) -> bytes:
    return _nested(1, _attribute(1, name.encode() + b"\0") + _nested(2, content))


def _protocol(number: bytes) -> bytes:
    return _expression("meta", _attribute(2, _number(16)) + _attribute(1, _REGISTER)) + _compare(number)


def _equals(header: int, offset: int, value: bytes) -> bytes:
    place = _attribute(2, _number(header)) + _attribute(3, _number(offset)) + _attribute(4, _number(len(value)))
    return _expression("payload", _attribute(1, _REGISTER) + place) + _compare(value)


def _compare(value: bytes) -> bytes:
    return _expression("cmp", _attribute(1, _REGISTER) + _attribute(2, bytes(4)) + _nested(3, _attribute(1, value)))


def _immediate(value: bytes) -> bytes:
    return _expression("immediate", _attribute(1, _REGISTER) + _nested(2, _attribute(1, value)))


def _number(value: int) -> bytes:
    return struct.pack(">I", value)


def _port(value: int) -> bytes:
    return struct.pack(">H", value)


# --- messages ---


class _Message(NamedTuple):
    kind: int
    body: bytes
    flags: int = 0

    def packed(self, number: int) -> bytes:
        flags = _REQUEST | self.flags
        return struct.pack("IHHII", 16 + len(self.body), self.kind, flags, number, 0) + self.body


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _nested(kind: int, content: bytes) -> bytes:
    return _attribute(kind | 0x8000, content)


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    while len(body) >= 4:
        length, kind = struct.unpack_from("HH", body)
        yield kind, body[4:length]
        body = body[(max(length, 4) + 3) & ~3 :]


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _talk(protocol: int, messages: Sequence[_Message], batch: bool = False) -> Iterator[tuple[int, bytes]]:
    """The kernel's answers to messages. It has done what they ask when there are no more. Raises: OSError."""
    asked = [message._replace(flags=message.flags | _ACK) for message in messages]
    if batch:
        head = struct.pack("BBH", 0, 0, socket.htons(10))
        asked = [_Message(_BATCH_BEGIN, head), *asked, _Message(_BATCH_END, head)]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as kernel:
        kernel.settimeout(_SECONDS)
        kernel.send(b"".join(message.packed(number) for number, message in enumerate(asked)))
        left = len(messages)
        while left:
            for kind, body in _split(kernel.recv(1 << 16)):
                if kind == _ERROR and (code := -struct.unpack_from("i", body)[0]):
                    raise OSError(code, f"{_PROTOCOLS[protocol]}: {os.strerror(code)}")
                if kind in (_ERROR, _DONE):
                    left -= 1
                else:
                    yield kind, body


def _split(received: bytes) -> Iterator[tuple[int, bytes]]:
    while len(received) >= 16:
        length, kind = struct.unpack_from("IH", received)
        yield kind, received[16:length]
        received = received[(max(length, 16) + 3) & ~3 :]
