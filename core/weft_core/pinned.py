"""Requests of boto3 through the door for addresses that users name (:mod:`weft_core.outgoing`)."""

from __future__ import annotations

import socket
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
    AWSPreparedRequest,
    AWSRequest,
    AWSResponse,
)
from botocore.client import BaseClient
from botocore.exceptions import HTTPClientError
from botocore.httpsession import URLLib3Session
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from weft_core.outgoing import NotAllowed, Outgoing


def pin(client: BaseClient, outgoing: Outgoing) -> None:
    """Let each connection of a client go through ``outgoing``: its host is looked up once, each address is checked, and
    the client connects to a checked one. TLS and the request are about the host's name. The client must have no proxy,
    which would look hosts up again.

    The client's methods then also raise NotAllowed.
    """
    session: Any = client._endpoint.http_session  # type: ignore[attr-defined]
    session.__class__ = _Session
    session._pool_classes_by_scheme.update(
        http=_pool(AWSHTTPConnectionPool, AWSHTTPConnection, outgoing),
        https=_pool(AWSHTTPSConnectionPool, AWSHTTPSConnection, outgoing),
    )


class _Session(URLLib3Session):
    def send(self, request: AWSRequest | AWSPreparedRequest) -> AWSResponse:
        try:
            return super().send(request)
        except HTTPClientError as error:  # which boto would try again
            if isinstance(cause := error.kwargs.get("error"), NotAllowed):
                raise cause from None
            raise


def _pool(pool: Any, connection: Any, outgoing: Outgoing) -> Any:
    class Pinned(connection):  # type: ignore[misc]
        _dns_host: str

        def _new_conn(self) -> socket.socket:
            name: str = self._dns_host
            host = f"[{self.host}]" if ":" in self.host else self.host
            problem: Exception | None = None
            try:
                for address in outgoing.check(f"{pool.scheme}://{host}:{self.port}"):
                    self._dns_host = address
                    try:
                        connected: socket.socket = super()._new_conn()
                        return connected
                    except (NewConnectionError, ConnectTimeoutError) as error:
                        problem = error
            finally:
                self._dns_host = name
            assert problem is not None  # there is an address
            raise problem

    return type("PinnedPool", (pool,), {"ConnectionCls": Pinned})
