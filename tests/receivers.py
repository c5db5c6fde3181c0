"""Receivers of notifications: an HTTP server that keeps what it gets, and a mail server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    url: str
    requests: list[Request] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Statuses and headers of the next answers; then 204."""
    hold: threading.Event | None = None
    """Answers wait for it."""


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A server at the loopback address that takes webhooks."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.requests.append(Request(self.path, dict(self.headers), body))
            if got.hold is not None:
                got.hold.wait(60)
            status, headers = got.answers.pop(0) if got.answers else (204, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        got = Receiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield got
        if got.hold is not None:
            got.hold.set()
        server.shutdown()
        thread.join()


@dataclass
class Mailbox:
    """What a mail server has taken."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Envelope, address: str, options: Any) -> str:  # noqa: N802 - aiosmtpd's name
        if address.startswith("nobody@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:  # noqa: N802
        message = message_from_bytes(cast(bytes, envelope.content), policy=policy.default)
        self.mails.append(message)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 OK"


@contextmanager
def mail_server(user: str = "", password: str = "") -> Iterator[Mailbox]:
    """A mail server at the loopback address; with a ``user``, it takes mail only after a sign-in."""
    box = Mailbox()

    def sign_in(server: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
        good = isinstance(given, LoginPassword) and (given.login, given.password) == (user.encode(), password.encode())
        return AuthResult(success=good, handled=good)

    options: dict[str, Any] = {"authenticator": sign_in, "auth_required": True, "auth_require_tls": False}
    loop = asyncio.new_event_loop()
    serving = loop.create_server(lambda: SMTP(box, loop=loop, **(options if user else {})), "127.0.0.1", 0)
    server = loop.run_until_complete(serving)
    box.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield box
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.close()
