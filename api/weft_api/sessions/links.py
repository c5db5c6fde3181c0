"""Links that sign in a browser once. They are made for users with a token, and valid for minutes."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal, find_principal
from weft_api.context import Context
from weft_api.http.problems import FORBIDDEN, UNAUTHENTICATED, Problem
from weft_api.sessions.schemas import LinkView
from weft_core.store.models import SignInLink, Token
from weft_core.tokens import LINK_PREFIX, hash_token, new_token

LIFETIME: Final = timedelta(minutes=10)
_ANOTHER: Final = "`weft login --browser` prints another"


def make_link(context: Context, who: Principal) -> LinkView:
    """A link to the sign-in page, with a secret that is kept as a hash only.

    It stands in the URL's fragment, which browsers send to no server: not in a request, which may be logged, nor as a
    referrer.

    Raises:
        Problem: forbidden for a session (a browser that is signed in needs no link) and for a service account.
    """
    if who.session or not who.token_id or who.service:
        raise Problem(FORBIDDEN, "a sign-in link is made with a person's token")
    plain = new_token("link")
    with context.database.transaction() as session:
        link = SignInLink(sha256=plain.sha256, token_id=who.token_id, expires_at=func.now() + LIFETIME)
        who.scope(session).add(link)
        session.flush()
        session.refresh(link)
        return LinkView(path=f"/signin#{plain.plain}", expires_at=link.expires_at)


def use_link(context: Context, plain: str) -> Principal:
    """The user whom a link signs in. The link is then used up, even if several requests come with it at the same time.

    Raises:
        Problem: unauthenticated, and why.
    """
    sha256 = hash_token(plain) if plain.isascii() and plain.startswith(LINK_PREFIX) else ""
    using = (
        update(SignInLink)
        .where(SignInLink.sha256 == sha256, SignInLink.used_at.is_(None), SignInLink.expires_at > func.now())
        .values(used_at=func.now())
        .returning(SignInLink.token_id)
    )
    with context.database.transaction() as session:
        token_id = session.scalar(using)
        if token_id is None:
            raise Problem(UNAUTHENTICATED, f"{_why_not(session, sha256)}; {_ANOTHER}")
        token_sha256 = session.scalar(select(Token.sha256).where(Token.id == token_id))
    principal = find_principal(context, token_sha256) if token_sha256 else None
    if principal is None:
        raise Problem(UNAUTHENTICATED, f"the token that made this link is not in force any more; {_ANOTHER}")
    return principal


def _why_not(session: Session, sha256: str) -> str:
    link = session.get(SignInLink, sha256)
    if link is None:
        return "this sign-in link is not known here"
    if link.used_at is not None:
        return "this sign-in link was used already: each signs in once"
    return f"this sign-in link has expired: each is valid for {LIFETIME.total_seconds() / 60:.0f} minutes"
