"""One try to deliver a notification: a request to a webhook through the door for users' URLs, or an e-mail by SMTP."""

from __future__ import annotations

import smtplib
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from weft_core.manifest import Notify
from weft_core.notifications import Notification, json_body, mail, signature, slack_body
from weft_core.outgoing import NoAnswer, NotAllowed, Outgoing
from weft_core.secrets import SecretBox, SecretsUnreadable
from weft_core.settings import Settings, SmtpSettings

_SECONDS = 10.0
"""For a whole request; for each step of a conversation by SMTP."""


@dataclass(frozen=True)
class Sent:
    """The result of a try."""

    delivered: bool
    status: str
    """In words, for the user."""
    retry_after: float = 0.0
    """Seconds for which the receiver asks for no more requests."""
    detail: str = ""
    """For the service's own log."""


class Sender:
    """Thread-safe. Opens a connection for each try, so that no receiver holds anything."""

    def __init__(self, settings: Settings, box: SecretBox) -> None:
        # Webhooks may not call the installation's own store.
        self._outgoing = Outgoing(settings.outgoing.allow, seconds=_SECONDS, most_bytes=0)
        self._smtp = settings.notify.smtp
        self._box = box

    def send(self, target: Notify, secret: bytes | None, notification: Notification) -> Sent:
        """Try once. Trouble is part of the answer.

        Args:
            secret: the value of the target's secret, encrypted; None: it names none, or it is not kept any more.
        """
        if target.secret and secret is None:
            return Sent(False, f"not sent: there is no secret named {target.secret!r} any more")
        try:
            value = self._box.decrypt(secret) if secret is not None else None
        except SecretsUnreadable as error:
            return Sent(False, f"not sent: {error}")
        if target.email:
            return self._mail(target.email, notification)
        if target.format == "slack":
            return self._post(target.url or (value or "").strip(), {}, slack_body(notification))
        body = json_body(notification)
        signed = {"Weft-Signature": signature(value, int(time.time()), body)} if value is not None else {}
        return self._post(target.url or "", {"Weft-Event-Id": notification.id, **signed}, body)

    def _post(self, url: str, headers: dict[str, str], body: bytes) -> Sent:
        headers = {"Content-Type": "application/json", "User-Agent": "weft", **headers}
        try:
            with self._outgoing.post(url, headers, body) as answer:
                status, wait = f"HTTP {answer.status}", _seconds(answer.retry_after)
                if 300 <= answer.status < 400:
                    status += ": points to another address, which is not followed"
                return Sent(200 <= answer.status < 300, status, wait)
        except NotAllowed as error:
            return Sent(False, f"not called: {error}", detail=error.detail)
        except NoAnswer as error:
            return Sent(False, "no answer", detail=str(error))

    def _mail(self, recipient: str, notification: Notification) -> Sent:
        if not self._smtp.host:
            return Sent(False, "not sent: this installation sends no e-mail any more")
        try:
            with _connect(self._smtp) as server:
                server.send_message(mail(notification, self._smtp.sender, recipient))
        except smtplib.SMTPRecipientsRefused as error:
            return Sent(False, "the mail server refuses the address", detail=str(error))
        except (smtplib.SMTPException, OSError, ValueError) as error:
            return Sent(False, "the mail server does not take it", detail=f"{type(error).__name__}: {error}")
        return Sent(True, "sent")


def _connect(smtp: SmtpSettings) -> smtplib.SMTP:
    trust = ssl.create_default_context()
    if smtp.tls == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=_SECONDS, context=trust)
    else:
        server = smtplib.SMTP(smtp.host, smtp.port, timeout=_SECONDS)
    try:
        if smtp.tls == "starttls":
            server.starttls(context=trust)
        if smtp.user:
            server.login(smtp.user, smtp.password.get_secret_value())
    except BaseException:
        server.close()
        raise
    return server


def _seconds(retry_after: str | None) -> float:
    """The time that the header ``Retry-After`` names, in seconds or as a date."""
    try:
        if not retry_after:
            return 0.0
        if retry_after.strip().isdigit():
            return float(retry_after[:12])
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
