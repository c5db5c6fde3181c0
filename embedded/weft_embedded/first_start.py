"""Makes an embedded installation usable at once: the administrator's token, the data store `default`."""

from __future__ import annotations

import socket

from sqlalchemy import select

from weft_core.settings import Settings
from weft_core.setup import ensure_admin, ensure_datastore, issue_token
from weft_core.store.database import Database
from weft_core.store.models import Token
from weft_core.tokens import hash_token


def ensure_accounts(database: Database, settings: Settings, known_token: str | None) -> str:
    """Administrator, project, membership and the data store `default`; returns a token that works.

    Args:
        known_token: the token in the home's profile; kept as long as it is valid.
    """
    with database.transaction() as session:
        user, project = ensure_admin(session)
        ensure_datastore(session, settings, project)
        if known_token is not None:
            row = session.scalars(select(Token).where(Token.sha256 == hash_token(known_token))).one_or_none()
            if row is not None and row.revoked_at is None and row.expires_at is None:
                return known_token
        return issue_token(session, user, project, f"weft up on {socket.gethostname()}")
