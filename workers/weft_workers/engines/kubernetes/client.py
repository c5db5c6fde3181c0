"""One API server: the connection, plain JSON in and out, and errors in words."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3 import exceptions as transport
from urllib3.response import BaseHTTPResponse

from weft_core.engine import EngineUnreachable
from weft_core.engine_settings import KubernetesSettings

Json = dict[str, Any]

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_DEAD_PEER = 20  # seconds until a connection whose other end is gone breaks
_PAGE = 500  # objects of a list at a time


class Refused(Exception):
    """The server has refused the request.

    Attributes:
        status: of HTTP: 403, 404, 409, 410, 422, …
        message: the server's own words.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class Cluster:
    """The API server of an engine. Nothing is connected before the first call, so that a fork does no harm.

    Every method raises :class:`EngineUnreachable` if it learns nothing (no answer, 401, 429, 5xx, a missing right), and
    :class:`Refused` for a refusal.
    """

    def __init__(self, engine: str, settings: KubernetesSettings) -> None:
        self._engine, self._settings = engine, settings
        self._lock = threading.Lock()
        self._api: client.ApiClient | None = None

    # --- calls ---

    def get(self, call: str, *args: Any, **options: Any) -> Json:
        """One request by the name of the client's method (``read_namespaced_pod``); its answer."""
        return self.get_dated(call, *args, **options)[0]

    def get_dated(self, call: str, *args: Any, **options: Any) -> tuple[Json, datetime]:
        """An answer, and the time of the server's clock."""
        timeout = self._settings.timeout
        with self._words():
            response = self._method(call)(*args, _preload_content=False, _request_timeout=(timeout, timeout), **options)
            found = json.loads(response.data)
        return found, _date(response.headers.get("Date"))

    def list(self, call: str, *args: Any, **options: Any) -> tuple[list[Json], str]:
        """All objects of a list, page by page, and its resource version."""
        found: list[Json] = []
        token: str | None = None
        while True:
            more = {"_continue": token} if token else {}
            page = self.get(call, *args, limit=_PAGE, **more, **options)
            found += page.get("items") or []
            token = page["metadata"].get("continue")
            if not token:
                return found, str(page["metadata"]["resourceVersion"])

    def stream(self, call: str, *args: Any, silence: float, **options: Any) -> BaseHTTPResponse:
        """An answer that goes on; breaks off when nothing comes for ``silence`` seconds."""
        timeout = (self._settings.timeout, silence)
        with self._words():
            response: BaseHTTPResponse = self._method(call)(
                *args, _preload_content=False, _request_timeout=timeout, **options
            )
            return response

    def lines(self, response: BaseHTTPResponse) -> Iterator[bytes]:
        """The lines of a stream, until the server ends it."""
        rest = b""
        with self._words():
            for piece in response.stream(amt=None):
                *whole, rest = (rest + piece).split(b"\n")
                yield from (line for line in whole if line)

    # --- the connection ---

    def _method(self, call: str) -> Callable[..., Any]:
        with self._lock:
            if self._api is None:
                self._api = self._connect()
            api = self._api
        for kind in (client.CoreV1Api, client.NetworkingV1Api, client.CustomObjectsApi):
            if found := getattr(kind, call, None):
                bound: Callable[..., Any] = found.__get__(kind(api))
                return bound
        raise AttributeError(call)

    def _connect(self) -> client.ApiClient:
        settings, chosen = self._settings, client.Configuration()
        if settings.kubeconfig is None and settings.context is None and _in_cluster():
            config.load_incluster_config(client_configuration=chosen)  # type: ignore[no-untyped-call]
        else:
            place = settings.kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube/config"
            config.load_kube_config(  # type: ignore[no-untyped-call]
                os.path.expanduser(place), settings.context, chosen, persist_config=False
            )
        chosen.retries = urllib3.Retry(total=0)  # the caller tries again
        chosen.connection_pool_maxsize = 16
        chosen.socket_options = _socket_options()
        return client.ApiClient(chosen)

    def _forget(self) -> None:
        """Read the configuration anew with the next call: certificates and tokens are replaced in place."""
        with self._lock:
            self._api = None

    # --- errors ---

    def unreachable(self, what: str) -> EngineUnreachable:
        api = self._api
        at = f" at {api.configuration.host}" if api is not None else ""
        return EngineUnreachable(f"engine {self._engine}: Kubernetes{at}: {what}")

    def _words(self) -> _Words:
        return _Words(self)

    def translate(self, error: BaseException) -> Exception | None:
        """The exception to raise instead of ``error``; None: the error does not come from the connection."""
        match error:
            case ApiException():
                return self._refusal(error)
            case ConfigException() | OSError():
                return self.unreachable(str(error))
            case transport.HTTPError():
                return self.unreachable(_describe(error, self._settings.timeout))
            case json.JSONDecodeError() | UnicodeDecodeError():
                return self.unreachable("its answer is no JSON; is this really the API server's address?")
            case _:
                return None

    def _refusal(self, error: ApiException) -> Exception:
        status, answer = error.status or 0, _status_of(error)
        message = str(answer.get("message") or error.reason or "no reason given").strip()
        if status == 401:
            refusal = self.unreachable("it does not accept Weft's credentials (401): are they outdated?")
            self._forget()
            return refusal
        if status == 403 and " cannot " in message:  # RBAC's own words: User "x" cannot create resource "pods" …
            return self.unreachable(f"a right is missing: {message}")
        if status in (0, 408, 429) or status >= 500:
            return self.unreachable(f"{message} ({status})" if status else message)
        return Refused(status, str(answer.get("reason") or error.reason), message)


class _Words:
    """Turns all exceptions of the client into this module's two errors."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and (instead := self._cluster.translate(error)):
            raise instead from error


def _in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and _SERVICE_ACCOUNT.is_file()


def _socket_options() -> list[tuple[int, int, int]]:
    """A watch says nothing for a minute: only the kernel notices that the other end is gone."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE", _DEAD_PEER // 2),
        ("TCP_KEEPINTVL", _DEAD_PEER // 4),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", _DEAD_PEER * 1000),
    ):
        if number := getattr(socket, name, None):
            options.append((socket.IPPROTO_TCP, number, value))
    return options


def _date(header: str | None) -> datetime:
    return parsedate_to_datetime(header) if header else datetime.now(UTC)


def _status_of(error: ApiException) -> Mapping[str, Any]:
    """The ``Status`` object that an error carries."""
    try:
        found = json.loads(error.body or "")
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _describe(error: transport.HTTPError, timeout: float) -> str:
    reason: object = error
    while isinstance(reason, transport.MaxRetryError) and reason.reason is not None:
        reason = reason.reason
    match reason:
        case transport.NameResolutionError():
            return "its name can't be resolved"
        case transport.NewConnectionError():
            return f"can't connect: {re.sub(r'^.*(: |[]] )', '', str(reason))}"
        case transport.ConnectTimeoutError():
            return f"no connection within {timeout:g} s"
        case transport.ReadTimeoutError():
            return f"no answer within {timeout:g} s"
        case transport.ProtocolError():
            return f"the connection broke off: {reason.args[-1] if reason.args else reason}"
        case _:
            return str(reason)
