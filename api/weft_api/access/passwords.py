"""Signing in with a password."""

from __future__ import annotations

from sqlalchemy import select

from weft_api.access.sign_in_limits import SIGN_IN_LIMITS
from weft_api.context import Context
from weft_api.http.problems import UNAUTHENTICATED, Problem
from weft_core.store.models import User
from weft_core.tokens import hash_password, new_token, verify_password


def check_password(context: Context, name: str, password: str, address: str) -> User:
    """The user with this name and password.

    Args:
        address: of the client.

    Raises:
        Problem: unauthenticated, the same for an unknown user and a wrong password; too_many_attempts.
    """
    SIGN_IN_LIMITS.of(context).begin(name, address)
    with context.database.transaction() as session:
        user = session.scalars(select(User).where(User.name == name)).one_or_none()
    known = user.password_hash if user and user.disabled_at is None else None
    # Outside of a transaction, because the hash is slow by design. A user that does not exist takes the same time.
    matches = verify_password(password, known or _nobody())
    if user is None or known is None or not matches:
        raise Problem(UNAUTHENTICATED, "wrong user name or password")
    SIGN_IN_LIMITS.of(context).succeeded(name, address)
    return user


_NOBODY: list[str] = []


def _nobody() -> str:
    if not _NOBODY:
        _NOBODY.append(hash_password(new_token("user").plain))
    return _NOBODY[0]
