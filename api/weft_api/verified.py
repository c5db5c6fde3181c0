"""Passwords that were found right a moment ago: who sends one with every request waits for its slow hash only once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time

from weft_api.context import Shared

_TRUST = 300.0  # seconds
_MOST = 10_000


class Verified:
    """Remembers neither passwords nor anything that tells them: a MAC under a key that this process alone has.

    What was right is right only as long as the user's stored hash stays as it is, so a changed password counts at once.
    Wrong passwords are not remembered; they go the long way, and are counted there.
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


VERIFIED = Shared(lambda _: Verified())
