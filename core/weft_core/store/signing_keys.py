"""The keys that sign the identity tokens of learners: RSA, private halves encrypted under ``secret_keys``.

A key is published a day before it signs, so that verifiers which keep the key set for a while know it by then. It stays
published until the last token that it has signed has expired. Keys are made when somebody asks for a token or for the
key set: no process rotates them.

``python -m weft_core.store.signing_keys`` retires all keys at once, for the case that one has leaked.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from weft_core.secrets import SecretBox
from weft_core.settings import load_settings
from weft_core.store.database import Database
from weft_core.store.models import SigningKey

if TYPE_CHECKING:  # it takes 1 MiB, and only where learners get identity tokens, or people sign in at a provider
    from joserfc.jwk import RSAKey

ALGORITHM = "RS256"
"""The one that AWS, Google Cloud and Microsoft Entra all accept."""
LONGEST_TOKEN = timedelta(hours=1)
AHEAD = timedelta(days=1)
"""How long a key is published before it signs."""
_MARGIN = timedelta(minutes=10)
"""For clocks that differ."""
_LOCK = 7_205_759_403
"""Of Postgres, so that one process makes a key."""
_BITS = 2048


@dataclass(frozen=True)
class Signer:
    """The key that signs now."""

    id: str
    private: RSAKey = field(repr=False)


def signer(session: Session, box: SecretBox, period: timedelta) -> Signer:
    """The key that signs now, made first if there is none; its successor is made a day before its end.

    Args:
        period: how long a new key signs.

    Raises:
        SecretsUnreadable: the key is under none of ``secret_keys``.
    """
    from joserfc.jwk import RSAKey

    row = _current(session, box, period)
    return Signer(row.id, RSAKey.import_key(box.decrypt(row.private_ciphertext)))


def key_set(session: Session, box: SecretBox, period: timedelta) -> list[dict[str, Any]]:
    """The public keys that verifiers need, as JWKs."""
    _current(session, box, period)
    published = select(SigningKey.public).where(SigningKey.published_until > _now()).order_by(SigningKey.signs_from)
    return list(session.scalars(published))


def retire_all(session: Session) -> int:
    """No token that any key has signed is valid any more; returns the number of keys."""
    now = _now()
    retired = update(SigningKey).where(SigningKey.published_until > now)
    ended = retired.values(
        signs_from=func.least(SigningKey.signs_from, now), signs_until=now, published_until=now
    ).returning(SigningKey.id)
    return len(session.scalars(ended).all())


def _current(session: Session, box: SecretBox, period: timedelta) -> SigningKey:
    now = _now()
    row = _signing(session, now)
    if row is not None and (row.signs_until - now > AHEAD or _signing(session, row.signs_until) is not None):
        return row
    session.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    row = _signing(session, now)  # another process may have made it meanwhile
    if row is None:
        row = _make(session, box, now, now + period)
    if row.signs_until - now <= AHEAD and _signing(session, row.signs_until) is None:
        _make(session, box, row.signs_until, row.signs_until + period)
        session.execute(delete(SigningKey).where(SigningKey.published_until < now))
    return row


def _signing(session: Session, at: datetime) -> SigningKey | None:
    """The key that signs at this time."""
    query = select(SigningKey).where(SigningKey.signs_from <= at, SigningKey.signs_until > at)
    return session.scalars(query.order_by(SigningKey.signs_from.desc()).limit(1)).one_or_none()


def _make(session: Session, box: SecretBox, start: datetime, end: datetime) -> SigningKey:
    from joserfc.jwk import RSAKey

    key = RSAKey.generate_key(_BITS, {"use": "sig", "alg": ALGORITHM}, auto_kid=True)
    public = key.as_dict(private=False)
    row = SigningKey(
        id=public["kid"],
        public=public,
        private_ciphertext=box.encrypt(key.as_pem(private=True).decode()),
        signs_from=start,
        signs_until=end,
        published_until=end + LONGEST_TOKEN + _MARGIN,
    )
    session.add(row)
    session.flush()
    return row


def _now() -> datetime:
    return datetime.now(UTC)


def main() -> int:
    try:
        settings = load_settings()
    except (ValidationError, ValueError) as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    database = Database(settings.database_url.get_secret_value())
    try:
        with database.transaction() as session:
            print(f"{retire_all(session)} keys are retired; learners get tokens of a new one when they renew theirs")
    except OperationalError as error:
        print(f"can't reach Postgres: {error.orig}", file=sys.stderr)
        return 1
    finally:
        database.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
