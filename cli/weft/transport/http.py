"""The transport: the one place that sends HTTP requests to the server, retries them, and explains errors."""

from __future__ import annotations

import random
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from weft.errors import NotFound, Unavailable, WeftError
from weft.profile import Server
from weft.transport.answers import is_wefts, not_now, not_weft, parsed, read_error, redirected, speaks_tls, unreachable

if TYPE_CHECKING:
    from weft.transport.tunnel import Tunnel

API = "/api/v1"
DELAYS = (0.2, 0.5, 1.0, 2.0)
"""Seconds before each retry of a request (with jitter)."""
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_PASSING = frozenset({502, 503, 504})
_LONGEST_WAIT = 10.0
"""Seconds that a client waits if requests come too fast for the server. A longer wait is the caller's to decide."""
# This machine is never behind a proxy, even if HTTP_PROXY is set.
_DIRECT: Mapping[str, None] = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))

Query = Mapping[str, str | int | float | bool | Sequence[str] | None]


@dataclass(frozen=True)
class Body:
    """A request body that can be produced again for a retry. ``size`` in bytes."""

    chunks: Callable[[], Iterable[bytes]]
    size: int
    type: str = "application/octet-stream"


def client_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("weft")
    except PackageNotFoundError:
        return "0+unknown"


def new_http_client(**options: Any) -> httpx.Client:
    """An httpx client with a short connect timeout, and without a proxy to this machine."""
    options.setdefault("timeout", TIMEOUT)
    return httpx.Client(mounts=dict(_DIRECT), headers={"User-Agent": f"weft/{client_version()}"}, **options)


def segment(text: str) -> str:
    """A segment of a URL's path, quoted (including slashes)."""
    return quote(text, safe="")


def jitter(delay: float) -> float:
    """``delay``, plus or minus a fifth, so that many clients don't retry at the same time."""
    return delay * random.uniform(0.8, 1.2)  # noqa: S311 - not a secret


class Transport:
    """Requests to one server, signed in, with retries. May be used by several threads.

    Args:
        server: the server and the credentials.
        delays: seconds before each retry.
        sleep: for tests.
    """

    def __init__(
        self,
        server: Server,
        *,
        delays: Sequence[float] = DELAYS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server = server
        self._delays = tuple(delays)
        self._sleep = sleep
        # Plain HTTP needs none of the certificates that take 20 ms to read. Without them, no https is trusted.
        plain = server.url.lower().startswith("http://")
        tls = {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)} if plain else {}
        self._http = new_http_client(base_url=server.url, **tls)
        self._token = server.token
        self._signing_in = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Query | None = None,
        json: Any = None,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        signed: bool = True,
        base: str = API,
    ) -> httpx.Response:
        """Send a request, with retries until an answer arrives. All tries of a POST have the same Idempotency-Key.

        Raises:
            Unavailable: there is no answer, or 502, 503 or 504, or too many requests come, even after the last retry.
            ApiError: the server refused.
            NotWeft: another server answered.
        """
        extra = dict(headers or {})
        if method == "POST":
            extra.setdefault("Idempotency-Key", str(uuid.uuid4()))
        if body is not None:
            extra |= {"Content-Length": str(body.size), "Content-Type": body.type}
        failure: Unavailable | None = None
        arrived = False
        broken: httpx.TransportError | None = None
        for delay in (*self._delays, None):
            try:
                response = self._http.request(
                    method,
                    base + path,
                    params=_query(params),
                    json=json,
                    content=iter(body.chunks()) if body is not None else None,
                    headers=extra | (self._sign() if signed else {}),
                )
            except httpx.TransportError as error:
                failure, broken, wait, arrived = unreachable(self.server.url, error), error, 0.0, True
            except (httpx.InvalidURL, UnicodeError) as error:
                raise WeftError(f"{self.server.url!r} is not a usable URL: {error}") from error
            else:
                wait = _wait(response)
                if response.status_code not in _PASSING and not wait:
                    return self._accept(method, response, signed=signed, repeated=arrived)
                failure, broken = not_now(self.server.url, response), None
                arrived = arrived or not wait
            if delay is not None:
                self._sleep(max(wait, jitter(delay)))
        assert failure is not None
        if isinstance(broken, httpx.ReadError | httpx.RemoteProtocolError) and speaks_tls(self.server.url):
            raise Unavailable(f"can't reach Weft at {self.server.url}: the server expects TLS; use https://…")
        raise failure

    def json(self, method: str, path: str, *, holds: str | None = None, **options: Any) -> dict[str, Any]:
        """Like :meth:`request`; returns the JSON object of the answer, or an empty one if there is no content.

        Args:
            holds: a key that every answer of Weft has; without it, another server has answered.
        """
        response = self.request(method, path, **options)
        if not response.content and holds is None:
            return {}
        data = parsed(response)
        if not isinstance(data, dict) or (holds is not None and holds not in data):
            raise not_weft(self.server, response)
        return data

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        params: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> Iterator[httpx.Response]:
        """One try of a request whose answer is read in pieces; the caller must retry.

        Raises:
            Unavailable: there is no answer, or 502, 503 or 504, or the stream was interrupted.
            ApiError: the server refused.
        """
        try:
            with self._http.stream(
                method,
                API + path,
                params=_query(params),
                headers=dict(headers or {}) | self._sign(),
                timeout=timeout or TIMEOUT,
            ) as response:
                if response.status_code >= 300:
                    response.read()
                    if response.status_code in _PASSING or _wait(response):
                        raise not_now(self.server.url, response)
                    self._accept(method, response, signed=True, repeated=False)
                yield response
        except httpx.TransportError as error:
            raise unreachable(self.server.url, error) from error

    def tunnel(self, path: str, opening: Mapping[str, Any]) -> Tunnel:
        """A tunnel into a job. ``opening``: what the learner's agent is asked for.

        Raises:
            Unavailable: the server or the learner does not answer.
            ApiError: the server refused.
        """
        from weft.transport.tunnel import Tunnel, connect  # few commands need it

        return Tunnel(lambda seconds: connect(self.server, API + path, self._sign(), seconds), opening)

    def _sign(self) -> dict[str, str]:
        if self._token is None and self.server.user and self.server.password:
            with self._signing_in:
                if self._token is None:
                    credentials = {"user": self.server.user, "password": self.server.password}
                    self._token = str(
                        self.json("POST", "/login", json=credentials, signed=False, holds="token")["token"]
                    )
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _accept(self, method: str, response: httpx.Response, *, signed: bool, repeated: bool) -> httpx.Response:
        if response.is_success:
            return response
        if 300 <= response.status_code < 400 and response.status_code != 304:
            raise redirected(self.server.url, response)
        if not is_wefts(response):
            raise not_weft(self.server, response)
        error = read_error(response, self.server, signed=signed)
        if method == "DELETE" and repeated and isinstance(error, NotFound):
            # The first try has deleted it; only its answer was lost.
            return httpx.Response(204, request=response.request)
        raise error


def _wait(response: httpx.Response) -> float:
    """Seconds after which the server takes the request that it has refused because too many came; 0: it says nothing
    of that kind, or that it takes long."""
    told = response.headers.get("retry-after", "")
    if response.status_code != 429 or not (told.isascii() and told.isdigit()):
        return 0.0
    return float(told) if float(told) <= _LONGEST_WAIT else 0.0


def _query(params: Query | None) -> list[tuple[str, str | int | float | bool | None]]:
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for key, value in (params or {}).items():
        if value is None:
            continue
        if isinstance(value, str) or not isinstance(value, Sequence):
            pairs.append((key, str(value).lower() if isinstance(value, bool) else str(value)))
        else:
            pairs += [(key, item) for item in value]
    return pairs
