"""Tokens and passwords: only hashes are kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

USER_PREFIX = "weft_u_"
ATTEMPT_PREFIX = "weft_a_"
SESSION_PREFIX = "weft_s_"
LINK_PREFIX = "weft_l_"
DEVICE_PREFIX = "weft_d_"
MLFLOW_PREFIX = "weft_m_"
_PREFIXES = {
    "user": USER_PREFIX,
    "attempt": ATTEMPT_PREFIX,
    "session": SESSION_PREFIX,
    "link": LINK_PREFIX,
    "device": DEVICE_PREFIX,
}

_passwords = PasswordHasher()


@dataclass(frozen=True)
class NewToken:
    """A token at its creation, the only time that its plain form exists."""

    plain: str = field(repr=False)
    prefix: str  # enough to recognise it by, too little to guess it from
    sha256: str


def new_token(kind: Literal["user", "attempt", "session", "link", "device"]) -> NewToken:
    """A token of 256 random bits, with a prefix that secret scanners and people recognise."""
    start = _PREFIXES[kind]
    plain = start + secrets.token_urlsafe(32)
    return NewToken(plain=plain, prefix=plain[: len(start) + 4], sha256=hash_token(plain))


def hash_token(plain: str) -> str:
    """SHA-256 in hex. A slow hash would add nothing to 256 random bits, and every request pays for it."""
    return hashlib.sha256(plain.encode()).hexdigest()


def mlflow_token(attempt_token: str) -> str:
    """The token for MLflow's API that belongs to an attempt. The user's program sees it; the attempt's own token can't
    be computed from it."""
    return MLFLOW_PREFIX + hmac.new(attempt_token.encode(), b"weft mlflow", hashlib.sha256).hexdigest()


def hash_password(password: str) -> str:
    """Argon2id with argon2-cffi's defaults (RFC 9106's low-memory profile)."""
    return _passwords.hash(password)


def verify_password(password: str, hashed: str) -> bool:
    try:
        return _passwords.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False
