"""Notifications as they are sent: as JSON, for Slack, and by e-mail (docs/notify.md).

Pure functions of an event, so that all tries to deliver it send the same.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.message import EmailMessage
from typing import Any
from urllib.parse import urlsplit

from weft_core.manifest import Notify


@dataclass(frozen=True)
class Notification:
    """An event of a job, understandable without further knowledge of the job."""

    id: str
    """The event's id: the same for all targets and all tries, and for no other event of any installation."""
    at: datetime
    message: str
    job_id: str
    job_name: str
    project: str
    url: str
    """The job's page."""
    attempt: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str | None = None
    """The state that the job has entered; None: a rule has fired."""
    previous_state: str | None = None
    rule: Mapping[str, Any] | None = None
    """``when`` and ``then``."""

    @property
    def headline(self) -> str:
        return self.state or "rule fired"


def event_id(job_id: str, number: int) -> str:
    """The id of an event, as receivers get it: numbers of events alone are unique in one installation only."""
    return f"{job_id}-{number}"


def json_body(notification: Notification) -> bytes:
    """The body of a request in Weft's own form."""
    told = {
        "id": notification.id,
        "type": "rule" if notification.rule else "state",
        "at": notification.at.isoformat(),
        "message": notification.message,
        "state": notification.state,
        "previous_state": notification.previous_state,
        "rule": notification.rule,
        "job": {
            "id": notification.job_id,
            "name": notification.job_name,
            "project": notification.project,
            "attempt": notification.attempt,
            "labels": notification.labels,
            "url": notification.url,
        },
    }
    return json.dumps(told).encode()


def slack_body(notification: Notification) -> bytes:
    """The body of a request to an incoming webhook of Slack's."""
    name, message = _for_slack(notification.job_name), _for_slack(notification.message)
    link = f"<{notification.url}|{notification.job_id}>"
    return json.dumps({"text": f"*{notification.headline}*: {name} ({link})\n{message}"}).encode()


def _for_slack(text: str) -> str:
    """Slack's own escapes, and nothing that a job's name or log could use to mention people."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mail(notification: Notification, sender: str, recipient: str) -> EmailMessage:
    """The e-mail. All tries have the same Message-ID, by which mail servers recognize a repetition."""
    message = EmailMessage()
    message["From"], message["To"] = sender, recipient
    message["Subject"] = f"[weft] {_on_one_line(notification.job_name)}: {notification.headline}"
    message["Date"] = notification.at
    message["Message-ID"] = f"<{notification.id}.{_short_hash(recipient)}@weft>"
    message["Auto-Submitted"] = "auto-generated"
    message["Weft-Event-Id"] = notification.id
    message.set_content(
        f"{notification.message}\n\nJob:     {notification.job_name} ({notification.job_id})\n"
        f"Project: {notification.project}\n{notification.url}\n"
    )
    return message


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def signature(secret: str, at: int, body: bytes) -> str:
    """The value of the header ``Weft-Signature``: the time of the try (seconds since the epoch), and the HMAC-SHA256 of
    this time, a dot and the body."""
    signed = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return f"t={at},v1={signed.hexdigest()}"


def shown_target(target: Notify) -> str:
    """A target for logs and lists. The path of a webhook is often what opens it, so it is left out."""
    if target.email:
        return target.email
    if target.url:
        parts = urlsplit(target.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}" + ("/…" if parts.path.strip("/") or parts.query else "")
    return f"the URL in the secret {target.secret}"
