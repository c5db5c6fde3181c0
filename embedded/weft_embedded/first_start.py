"""Makes an embedded installation usable at once: the administrator's token, the data store `default`."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_core.secrets import SecretBox
from weft_core.settings import Settings
from weft_core.setup import DATASTORE, add_datastore, ensure_admin, issue_token
from weft_core.store.database import Database
from weft_core.store.models import Datastore, Project, Secret, Token
from weft_core.tokens import hash_token
from weft_embedded.servers.seaweedfs import S3Identity


@dataclass(frozen=True)
class EmbeddedStore:
    """The S3 store that we run, and who users' jobs are there."""

    endpoint: str
    identity: S3Identity
    former: str | None = None
    """Its endpoint as of the last start."""


def ensure_accounts(
    database: Database, settings: Settings, known_token: str | None, store: EmbeddedStore | None
) -> str:
    """Administrator, project, membership and the datastore `default`; returns a token that works.

    Args:
        known_token: what the home's profile holds; kept while it is good.
        store: the embedded S3 store, if we run it.
    """
    with database.transaction() as session:
        user, project = ensure_admin(session)
        if store is not None:
            _datastore(session, SecretBox(settings.secret_keys), project, store)
        if known_token is not None:
            row = session.scalars(select(Token).where(Token.sha256 == hash_token(known_token))).one_or_none()
            if row is not None and row.revoked_at is None and row.expires_at is None:
                return known_token
        return issue_token(session, user, project, f"weft up on {socket.gethostname()}")


def _datastore(session: Session, box: SecretBox, project: Project, store: EmbeddedStore) -> None:
    """Make it, or follow a store whose address or port changed; one that points elsewhere is the user's."""
    row = session.scalars(
        select(Datastore).where(Datastore.project_id == project.id, Datastore.name == DATASTORE)
    ).one_or_none()
    if row is None:
        identity = store.identity
        add_datastore(session, box, project, store.endpoint, "us-east-1", identity.access_key, identity.secret_key)
    elif row.endpoint != store.endpoint and (
        row.endpoint == store.former or row.endpoint.startswith("http://127.0.0.1:")
    ):
        kept = session.get_one(Secret, row.secret_id)
        if store.identity.access_key in box.decrypt(kept.ciphertext):
            row.endpoint = store.endpoint
