"""Passwords that were right a moment ago: a client that sends one with every request waits for the slow hash once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time

from weft_api.context import Shared

_TRUST = 300.0  # seconds
_MOST = 10_000


class VerifiedPasswords:
    """Keeps no passwords, only a MAC of each under a key that exists in this process alone.

    The MAC covers the user's stored hash, so a change of the password takes effect at once. Wrong passwords are not
    kept: each is hashed and counted.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._until: dict[bytes, float] = {}
        self._lock = threading.Lock()

    def knows(self, user_id: str, stored: str, password: str) -> bool:
        with self._lock:
            return self._until.get(self._mac(user_id, stored, password), 0.0) > time.monotonic()

    def add(self, user_id: str, stored: str, password: str) -> None:
        now = time.monotonic()
        with self._lock:
            if len(self._until) >= _MOST:
                self._until = {mac: until for mac, until in self._until.items() if until > now}
            if len(self._until) < _MOST:
                self._until[self._mac(user_id, stored, password)] = now + _TRUST

    def _mac(self, user_id: str, stored: str, password: str) -> bytes:
        message = "\0".join((user_id, stored, password)).encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).digest()


VERIFIED_PASSWORDS = Shared(lambda _: VerifiedPasswords())
