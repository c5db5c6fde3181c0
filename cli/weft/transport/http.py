"""The transport: one place that talks HTTP to the server, repeats what may be repeated, and words what went wrong."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote

import httpx

from weft.errors import NotFound, Unavailable, WeftError
from weft.profile import Server
from weft.transport.answers import is_wefts, not_now, not_weft, parsed, read_error, redirected, speaks_tls, unreachable

API = "/api/v1"
DELAYS = (0.2, 0.5, 1.0, 2.0)
"""Seconds before each repetition of a request that did not get through (with jitter)."""
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_PASSING = frozenset({502, 503, 504})
# This machine is never behind a proxy, whatever HTTP_PROXY says.
_DIRECT: Mapping[str, None] = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))

Query = Mapping[str, str | int | float | bool | Sequence[str] | None]


@dataclass(frozen=True)
class Body:
    """A request body that can be produced again for a repetition. ``size`` in bytes."""

    chunks: Callable[[], Iterable[bytes]]
    size: int
    type: str = "application/octet-stream"


def client_version() -> str:
    """This distribution's version."""
    try:
        return version("weft")
    except PackageNotFoundError:
        return "0+unknown"


def new_http_client(**options: Any) -> httpx.Client:
    """An httpx client as Weft wants it: short connect timeout, no proxy to this machine."""
    options.setdefault("timeout", TIMEOUT)
    return httpx.Client(mounts=dict(_DIRECT), headers={"User-Agent": f"weft/{client_version()}"}, **options)


def segment(text: str) -> str:
    """One path segment of a URL, quoted (a slash too)."""
    return quote(text, safe="")


def jitter(delay: float) -> float:
    """``delay`` give or take a fifth, so that many clients don't return all at once."""
    return delay * random.uniform(0.8, 1.2)  # noqa: S311 - nothing to do with secrecy


class Transport:
    """Requests to one server, signed in, with retries. May be used by several threads.

    Args:
        server: where, and with which token.
        delays: seconds before each repetition.
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
        self._http = new_http_client(base_url=server.url)
        self._token = server.token
        self._signing_in = threading.Lock()

    def close(self) -> None:
        """Drop the connections."""
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
        """Send a request until an answer arrives; a POST carries one Idempotency-Key through all its repetitions.

        Raises:
            Unavailable: no answer, or 502, 503, 504, also after the last repetition.
            ApiError: the server refused.
            NotWeft: it is another server.
        """
        extra = dict(headers or {})
        if method == "POST":
            extra.setdefault("Idempotency-Key", str(uuid.uuid4()))
        if body is not None:
            extra |= {"Content-Length": str(body.size), "Content-Type": body.type}
        failure: Unavailable | None = None
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
                failure, broken = unreachable(self.server.url, error), error
            except (httpx.InvalidURL, UnicodeError) as error:
                raise WeftError(f"{self.server.url!r} is no usable URL: {error}") from error
            else:
                if response.status_code not in _PASSING:
                    return self._accept(method, response, signed=signed, repeated=failure is not None)
                failure, broken = not_now(self.server.url, response), None
            if delay is not None:
                self._sleep(jitter(delay))
        assert failure is not None
        if isinstance(broken, httpx.ReadError | httpx.RemoteProtocolError) and speaks_tls(self.server.url):
            raise Unavailable(f"can't reach Weft at {self.server.url}: TLS is spoken there, so that it is https://…")
        raise failure

    def json(self, method: str, path: str, *, holds: str | None = None, **options: Any) -> dict[str, Any]:
        """Like :meth:`request`; the answer's JSON object (empty when there is no content). Weft's has ``holds``."""
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
        """One try at an answer that is read bit by bit; the caller repeats.

        Raises:
            Unavailable: no answer, 502, 503 or 504, or the stream broke off.
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
                    if response.status_code in _PASSING:
                        raise not_now(self.server.url, response)
                    self._accept(method, response, signed=True, repeated=False)
                yield response
        except httpx.TransportError as error:
            raise unreachable(self.server.url, error) from error

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
            # The first try did it; only its answer was lost.
            return httpx.Response(204, request=response.request)
        raise error


def _query(params: Query | None) -> list[tuple[str, str | int | float | bool | None]]:
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for key, value in (params or {}).items():
        if value is None:
            continue
        if isinstance(value, str) or not isinstance(value, Sequence):
            pairs.append((key, str(value).lower() if isinstance(value, bool) else str(value)))
        else:
            pairs += [(key, one) for one in value]
    return pairs
