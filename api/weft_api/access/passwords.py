"""Signing in with a password, and the queue for Argon2."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from sqlalchemy import select

from weft_api.access.sign_in_limits import SIGN_IN_LIMITS
from weft_api.context import Context, Shared
from weft_api.http.audited import about, acting, must_record
from weft_api.http.problems import TOO_MANY_SIGN_INS, UNAUTHENTICATED, Problem, invalid
from weft_core.hashing import Hasher
from weft_core.store.models import ActorKind, User
from weft_core.tokens import new_token

_SLOTS = 2
_WAITING = 8
_SCORE = 2
"""Of zxcvbn's 0 to 4: more than a million guesses."""
_ESTIMATED = 72
"""Characters that zxcvbn takes; its time grows with the square."""
_ACCEPTED = "for example a few words that do not belong together"
_RETRY = TOO_MANY_SIGN_INS.retry_after


class PasswordQueue:
    """Lets two requests hash at the same time and a few more wait, however many come.

    Argon2 is slow by design. The others keep the processors, and most of the threads that answer requests.
    """

    def __init__(self) -> None:
        self._hashers = [Hasher() for _ in range(_SLOTS)]
        self._free: queue.SimpleQueue[Hasher] = queue.SimpleQueue()
        for hasher in self._hashers:
            self._free.put(hasher)
        self._places = threading.BoundedSemaphore(_SLOTS + _WAITING)

    @contextmanager
    def place(self) -> Iterator[AbstractContextManager[Hasher]]:
        """A place in the queue; entering the context that it yields waits for a hasher.

        Raises:
            Problem: too_many_sign_ins.
        """
        if not self._places.acquire(blocking=False):
            raise Problem(TOO_MANY_SIGN_INS, f"the server checks many passwords now: try again in {_RETRY} s")
        try:
            yield self._hasher()
        finally:
            self._places.release()

    @contextmanager
    def _hasher(self) -> Iterator[Hasher]:
        hasher = self._free.get()
        try:
            yield hasher
        finally:
            self._free.put(hasher)

    def close(self) -> None:
        for hasher in self._hashers:
            hasher.close()


PASSWORD_QUEUE = Shared(lambda _: PasswordQueue(), PasswordQueue.close)


def hash_new(context: Context, password: str, name: str) -> str:
    """The hash of a new password for the user ``name``.

    Raises:
        Problem: invalid_request when the password is easy to guess; too_many_sign_ins.
    """
    _refuse_guessable(password, name)
    with PASSWORD_QUEUE.of(context).place() as slot, slot as hasher:
        return hasher.hash(password)


def _refuse_guessable(password: str, name: str) -> None:
    """Refuse common passwords, names, dates, patterns of the keyboard, and variations of them.

    The method is zxcvbn's: Wheeler, "zxcvbn: Low-Budget Password Strength Estimation", USENIX Security 2016.
    """
    from zxcvbn import zxcvbn  # its lists of words take 14 MiB, and few processes ever set a password

    found = zxcvbn(password[:_ESTIMATED], user_inputs=[name, "weft"])
    if found["score"] < _SCORE:
        why = found["feedback"]["warning"].rstrip(".") or "it is short and simple"
        raise invalid("body.password", f"this password is easy to guess: {why[0].lower()}{why[1:]}", accepted=_ACCEPTED)


def check_password(context: Context, name: str, password: str, address: str) -> User:
    """The user with this name and password.

    Args:
        address: of the client.

    Raises:
        Problem: unauthenticated, the same for an unknown user and a wrong password; too_many_attempts;
            too_many_sign_ins, which does not count as a try.
    """
    with PASSWORD_QUEUE.of(context).place() as slot:
        return _check(context, name, password, address, slot)


def _check(context: Context, name: str, password: str, address: str, slot: AbstractContextManager[Hasher]) -> User:
    SIGN_IN_LIMITS.of(context).begin(name, address)
    with context.database.transaction() as session:
        user = session.scalars(select(User).where(User.name == name)).one_or_none()
    known = user.password_hash if user and user.disabled_at is None else None
    # Outside of a transaction, because the hash is slow by design. A user that does not exist takes the same time.
    with slot as hasher:
        matches = hasher.verify(password, known or _nobody(hasher))
    if user is None or known is None or not matches:
        must_record("sign-in")
        if user is not None:  # no other text: somebody may type a password where the name belongs
            about("user", user.name)
        raise Problem(UNAUTHENTICATED, "wrong user name or password")
    SIGN_IN_LIMITS.of(context).succeeded(name, address)
    acting(ActorKind.PASSWORD, user_id=user.id, user=user.name)
    return user


_NOBODY: list[str] = []


def _nobody(hasher: Hasher) -> str:
    if not _NOBODY:
        _NOBODY.append(hasher.hash(new_token("user").plain))
    return _NOBODY[0]
