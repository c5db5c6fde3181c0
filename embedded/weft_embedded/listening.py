"""The addresses of API and S3: on this machine alone, or an address at which pods and other machines reach them."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from weft_embedded.home import HomeError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Listening:
    """The address at which servers listen, and their name in URLs."""

    host: str = LOOPBACK
    """An address, or a name of one."""
    name: str = LOOPBACK

    @property
    def is_open(self) -> bool:
        """Whether other machines may reach it."""
        address = _address(self.host)
        return address is None or not address.is_loopback

    @property
    def local(self) -> str:
        """The host in a URL that works on this machine."""
        address = _address(self.host)
        return LOOPBACK if address is not None and address.is_unspecified else in_url(self.host)


def in_url(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def resolve(host: str, public_url: str | None) -> Listening:
    """The meaning of ``host`` on this machine.

    Args:
        host: an address of this machine, a name of it, or 0.0.0.0 or :: for all addresses.
        public_url: the API's own, if it is set: says by which name others find an installation that listens everywhere.

    Raises:
        HomeError: nothing can listen there, or nobody could find it.
    """
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    address = _address(host)
    if address is None and not re.fullmatch(r"(?!-)[A-Za-z0-9.-]{1,253}", host):
        raise HomeError(
            f"can't listen at {host!r}: expected an address or a name of this machine, without port or scheme, "
            f"such as {_examples()}"
        )
    if address is not None and address.is_unspecified:
        named = urlsplit(public_url).hostname if public_url else None
        if named is None:
            raise HomeError(
                f"{host} listens everywhere, which does not say where to find it: give the address that learners and "
                f"users use ({_examples()}), or set [api] public_url beside it"
            )
        return Listening(host, in_url(named))
    _check_ours(host, address)
    return Listening("127.0.0.1" if host == "localhost" else host, in_url(host))


def _check_ours(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> None:
    """Raises HomeError unless a server can listen at this host."""
    if address is not None and address.is_multicast:
        raise HomeError(f"can't listen at {host}, a multicast address: this machine has {_examples()}")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise HomeError(f"can't listen at {host}: {error.strerror or error}; this machine has {_examples()}") from None
    with socket.socket(family, kind, protocol) as probe:
        try:
            probe.bind(place)
        except OSError:
            means = "" if address else f" ({place[0]})"
            raise HomeError(f"{host}{means} is no address of this machine, which has {_examples()}") from None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return ipaddress.ip_address(LOOPBACK) if host == "localhost" else None


def _examples() -> str:
    """This machine's IPv4 addresses, those that others may reach first."""
    found = {
        entry.address
        for card in psutil.net_if_addrs().values()
        for entry in card
        if entry.family is socket.AddressFamily.AF_INET
    }
    ordered = sorted(found, key=lambda address: (ipaddress.ip_address(address).is_loopback, address))
    return ", ".join(ordered[:6]) or LOOPBACK
