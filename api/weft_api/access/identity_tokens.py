"""Identity tokens (OpenID Connect) by which clouds and other services know a learner. Docs: docs/cloud-identity.md."""

from __future__ import annotations

import secrets
import time
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_api.context import Context
from weft_api.http.problems import NOT_FOUND, Problem
from weft_core.launch import IdentityToken
from weft_core.manifest import Identity
from weft_core.store.models import Attempt, Job, Project, User
from weft_core.store.row_security import across_projects
from weft_core.store.signing_keys import ALGORITHM, LONGEST_TOKEN, key_set, signer

SECONDS = int(LONGEST_TOKEN.total_seconds())
"""How long a token is valid. The agent renews it at half time, as long as the attempt lasts."""


def issuer_url(context: Context) -> str:
    """Raises Problem not_found: the installation issues no tokens."""
    issuer = context.settings.identity.issuer
    if not issuer:
        raise Problem(NOT_FOUND, "this installation issues no identity tokens")
    return issuer


def published_keys(context: Context) -> list[dict[str, Any]]:
    """The JWKs that verifiers need. Raises Problem not_found."""
    issuer_url(context)
    with context.database.transaction() as session:
        return key_set(session, context.box, _period(context))


def identity_token(
    context: Context, session: Session, job: Job, attempt: Attempt, rank: int, wanted: Identity
) -> IdentityToken | None:
    """A new token of a learner of an open attempt. None: the installation issues none any more.

    Raises:
        SecretsUnreadable: the signing key is under none of ``secret_keys``.
    """
    from joserfc import jwt

    issuer = context.settings.identity.issuer
    if not issuer:
        return None
    with across_projects(session):  # the keys are the installation's
        key = signer(session, context.box, _period(context))
    project = session.scalars(select(Project.name).where(Project.id == job.project_id)).one()
    user = session.scalars(select(User.name).where(User.id == job.user_id)).one()
    now = int(time.time())
    subject = f"project:{job.project_id}"
    claims = {
        "iss": issuer,
        "sub": subject if wanted.subject == "project" else f"{subject}:job:{job.id}",
        "aud": wanted.audience,
        "iat": now,
        "nbf": now,
        "exp": now + SECONDS,
        "jti": secrets.token_hex(16),
        "weft": {
            "project": project,
            "project_id": job.project_id,
            "job": job.id,
            "attempt": attempt.n,
            "learner": rank + 1,
            "user": user,
        },
    }
    token = jwt.encode({"alg": ALGORITHM, "typ": "JWT", "kid": key.id}, claims, key.private, algorithms=[ALGORITHM])
    return IdentityToken(token=token, seconds=SECONDS)


def _period(context: Context) -> timedelta:
    return timedelta(days=context.settings.identity.key_days)
