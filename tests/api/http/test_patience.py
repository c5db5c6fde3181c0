"""Connections that are opened and stay silent are closed, and no others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from tests.api.conftest import Api, Person

from weft_api.app import create_app
from weft_api.http import patience
from weft_core.store.models import Job


@pytest.fixture
def address(api: Api) -> Iterator[tuple[str, int]]:
    """The application as ``python -m weft_api`` serves it."""
    app = create_app(api.settings)
    config = uvicorn.Config(app, port=0, http=patience.PatientProtocol, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()
    server.should_exit = True
    thread.join()


def _send(address: tuple[str, int], text: str) -> socket.socket:
    connection = socket.create_connection(address, timeout=300)
    connection.sendall(text.encode())
    return connection


def _all(connection: socket.socket) -> str:
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.mark.parametrize("begun", ["", "GET /healthz HT", "GET /healthz HTTP/1.1\r\nHost: weft\r\nX-A: "])
@pytest.mark.parametrize("before", ["", "GET /healthz HTTP/1.1\r\nHost: weft\r\n\r\n"])
def test_headers_that_do_not_come(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, before: str, begun: str
) -> None:
    monkeypatch.setattr(patience, "HEADERS", 0.5)
    answer = _all(_send(address, before + begun))
    assert answer.count("HTTP/1.1 200") <= 1
    if not before:
        assert answer == ""


def test_a_body_that_stops_on_the_way(ann: Person, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "BODY", 0.5)
    head = (
        "POST /api/v1/jobs HTTP/1.1\r\nHost: weft\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
        f"Authorization: Bearer {ann.token}\r\n\r\n"
    )
    answer = _all(_send(address, head + '{"manifest": '))
    assert answer.startswith("HTTP/1.1 408"), answer
    assert '"code":"too_slow"' in answer
    assert "x-request-id" in answer


def test_a_stream_outlives_the_limits(
    api: Api, ann: Person, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are for requests, not for answers."""
    monkeypatch.setattr(patience, "HEADERS", 2.0)
    monkeypatch.setattr(patience, "BODY", 2.0)
    job = ann.submit()["id"]
    head = f"GET /api/v1/jobs/{job}/logs/follow HTTP/1.1\r\nHost: weft\r\nAuthorization: Bearer {ann.token}\r\n\r\n"
    with _send(address, head) as connection:
        seen = connection.recv(65536).decode()
        assert seen.startswith("HTTP/1.1 200"), seen
        time.sleep(4.5)  # beyond both limits
        with api.context.database.transaction() as session:
            session.delete(session.get_one(Job, job))
        while "event: end" not in seen:
            piece = connection.recv(65536).decode()
            assert piece, seen
            seen += piece
