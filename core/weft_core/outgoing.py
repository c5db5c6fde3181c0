"""The door for requests to addresses that users name.

The service reaches more than its users do: its own machine, its network, a cloud's metadata. So it calls a user's URL
only through :class:`Outgoing`, which looks a host up once, checks every address, and connects to a checked one.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, quote, urlsplit

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Sequence[str]]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PIECE = 1 << 16
_AZURE = ip_address("168.63.129.16")  # looks public, but tells each machine of Azure's about itself


class NotAllowed(Exception):
    """The service does not call this URL. The message is for the user, and tells nothing about the service's network.

    Attributes:
        detail: for the service's own log.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class NoAnswer(Exception):
    """No sensible answer came in time. The message is for the service's own log."""


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host. Raises: OSError, UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Outgoing:
    """
    Args:
        allow: hosts and networks that may be called besides public addresses, also by http; None: everything may be.
        own: URLs of the administrator's settings, whose hosts and ports may be called, too.
        resolve: looks a host up.
        connect_seconds: the longest time for one connection.
        seconds: the longest time for a whole request.
        most_bytes: the most bytes of an answer.
    """

    def __init__(
        self,
        allow: Iterable[str] | None,
        *,
        own: Iterable[str] = (),
        resolve: Resolve = resolve,
        connect_seconds: float = 5.0,
        seconds: float = 15.0,
        most_bytes: int = 32 << 20,
    ) -> None:
        self._all = allow is None
        self._hosts, self._networks = set(), []
        for entry in allow or ():
            try:
                self._networks.append(ip_network(entry, strict=False))
            except ValueError:
                self._hosts.add(_plain(entry))
        self._own = {_place(url) for url in own}
        self._resolve = resolve
        self._connect_seconds = connect_seconds
        self._seconds = seconds
        self._most_bytes = most_bytes

    def check(self, url: str) -> list[str]:
        """The addresses at which ``url`` may be called. Raises: NotAllowed."""
        try:
            _, host, port = _place(url)
        except ValueError as error:
            raise NotAllowed("expected a URL such as https://store.example.com", str(error)) from None
        secure = url.lower().startswith("https:")
        # One message for each kind of URL, whether or not the host is known: it tells nobody which names exist inside.
        if secure or self._all or self.owns(url) or _plain(host) in self._hosts:
            refusal = (
                "its host can't be found, or is one that this installation does not call "
                "(for hosts of private networks, the administrator's setting is outgoing.allow)"
            )
        else:
            refusal = "expected https:// (for http://, the administrator's setting outgoing.allow must have the host)"
        try:
            found = [ip_address(address) for address in self._resolve(host, port)]
        except (OSError, UnicodeError, ValueError) as error:
            raise NotAllowed(refusal, f"{host}: {error}") from None
        strangers = [address for address in found if not self._is_listed(host, address)] if not self.owns(url) else []
        refused = [address for address in strangers if not (secure and is_public(address))]
        if refused or not found:
            raise NotAllowed(refusal, f"{host}: {', '.join(map(str, refused)) or 'no address'}")
        return [str(address) for address in found]

    def owns(self, url: str) -> bool:
        """Whether an administrator's setting names the same scheme, host and port."""
        try:
            return _place(url) in self._own
        except ValueError:
            return False

    def _is_listed(self, host: str, address: Address) -> bool:
        return self._all or _plain(host) in self._hosts or any(_unmapped(address) in known for known in self._networks)

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Answer]:
        """The answer to a GET, which is read inside the ``with``. Redirects are not followed.

        Raises:
            NotAllowed, NoAnswer: NoAnswer also inside the ``with``.
        """
        with self._request("GET", url, headers, None) as answer:
            yield answer

    @contextmanager
    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Iterator[Answer]:
        """The answer to a POST, as :meth:`get` gives it."""
        with self._request("POST", url, headers, body) as answer:
            yield answer

    @contextmanager
    def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Iterator[Answer]:
        deadline = time.monotonic() + self._seconds
        addresses = self.check(url)
        parts = urlsplit(url)
        target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
        try:
            with self._connect(parts, addresses, deadline) as connected:
                connection = http.client.HTTPConnection(parts.hostname or "", _port(parts))
                connection.sock = _Stream(connected, deadline)
                host = parts.netloc.rpartition("@")[2].encode("idna").decode()
                connection.request(method, target, body, {"Host": host, "Connection": "close", **headers})
                yield Answer(connection.getresponse(), self._most_bytes)
        except (OSError, UnicodeError, ValueError, http.client.HTTPException) as error:
            raise NoAnswer(f"{parts.hostname}: {type(error).__name__}: {error}") from None

    def _connect(self, parts: SplitResult, addresses: Sequence[str], deadline: float) -> socket.socket:
        """A connection to the first address that takes one. TLS is about the host's name."""
        problem: OSError = TimeoutError("no time is left")
        for address in addresses:
            seconds = min(self._connect_seconds, deadline - time.monotonic())
            if seconds <= 0:
                break
            try:
                connected = socket.create_connection((address, _port(parts)), timeout=seconds)
            except OSError as error:
                problem = error
                continue
            if parts.scheme != "https":
                return connected
            try:
                return ssl.create_default_context().wrap_socket(connected, server_hostname=parts.hostname)
            except BaseException:
                connected.close()
                raise
        raise problem


class Answer:
    """The answer of an untrusted server."""

    def __init__(self, answer: http.client.HTTPResponse, most_bytes: int) -> None:
        self.status = answer.status
        self.retry_after = answer.headers.get("Retry-After")
        """The header: seconds, or a date."""
        self.content_type = (answer.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        self._answer = answer
        self._left = most_bytes

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes. Raises: NoAnswer: there are fewer, or too many in all."""
        self._left -= size
        if self._left < 0:
            raise NoAnswer("the answer is too large")
        pieces = []
        while size and (piece := self._answer.read(min(size, _PIECE))):
            pieces.append(piece)
            size -= len(piece)
        if size:
            raise NoAnswer("the answer is too short")
        return b"".join(pieces)

    def read_all(self) -> bytes:
        """All the bytes. Raises: NoAnswer: there are too many."""
        pieces = []
        while piece := self._answer.read(_PIECE):
            self._left -= len(piece)
            if self._left < 0:
                raise NoAnswer("the answer is too large")
            pieces.append(piece)
        return b"".join(pieces)


class _Stream(io.RawIOBase):
    """A connection, as http.client needs it. All reads and writes together end by ``deadline``, however slowly the
    bytes come."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._connected = connected
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def sendall(self, data: bytes) -> None:
        self._limit()
        self._connected.sendall(data)

    def close(self) -> None:
        """http.client closes it before the answer has been read. The connection's own ``with`` closes that."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._limit()
        return self._connected.recv_into(buffer)

    def _limit(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        self._connected.settimeout(left)


def _place(url: str) -> tuple[str, str, int]:
    """The scheme, host and port of a URL. Raises: ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"no URL of http or https: {url!r}")
    return parts.scheme, _plain(parts.hostname), _port(parts)


def _port(parts: SplitResult) -> int:
    return parts.port or _DEFAULT_PORTS[parts.scheme]


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _unmapped(address: Address) -> Address:
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def is_public(address: Address) -> bool:
    """Whether an address belongs to the internet: to no network of one's own, and to no service of a cloud's host."""
    address = _unmapped(address)
    if address == _AZURE:
        return False
    if isinstance(address, IPv6Address) and (address.is_site_local or address.sixtofour):
        return False  # 6to4 has any IPv4 address in it
    # Among the reserved ones of IPv6 are NAT64's, which have any IPv4 address in them, too.
    return address.is_global and not (address.is_multicast or address.is_reserved)
