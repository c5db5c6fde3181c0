"""Signing in a program that has no browser, after RFC 8628: it shows a code, and its user confirms the code on Weft's
page, signed in there by any method. So it works with each identity provider, and without one."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal, find_principal
from weft_api.context import Context
from weft_api.http.audited import about, must_record
from weft_api.http.idempotency import Once
from weft_api.http.problems import (
    ACCESS_DENIED,
    AUTHORIZATION_PENDING,
    CONFLICT,
    EXPIRED_TOKEN,
    FORBIDDEN,
    NOT_FOUND,
    SLOW_DOWN,
    TOO_MANY_SIGN_INS,
    Problem,
    not_found,
)
from weft_api.tokens.schemas import CreatedToken, DeviceBody, DeviceCode, DeviceView
from weft_api.tokens.service import issue_login
from weft_core.store.models import DeviceLogin, Member, Project, Token
from weft_core.tokens import hash_token, new_token

LIFETIME: Final = timedelta(minutes=10)
INTERVAL: Final = 3
"""Seconds between two requests of a program for its token."""
_TOLERATED: Final = timedelta(seconds=INTERVAL - 1)
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that no code is a word (RFC 8628, section 6.1)."""
_LENGTH: Final = 8
_MOST: Final = 2000
_MOST_PER_ADDRESS: Final = 50


def begin(context: Context, body: DeviceBody, address: str) -> DeviceCode:
    """A new pair of codes: one for the program, one for its user.

    Raises:
        Problem: too_many_sign_ins, if too many wait already.
    """
    device = new_token("device")
    letters = "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
    code = f"{letters[:4]}-{letters[4:]}"
    with context.database.transaction() as session:
        session.execute(delete(DeviceLogin).where(DeviceLogin.expires_at <= func.now()))
        here = func.count().filter(DeviceLogin.address == address)
        waiting, of_address = session.execute(select(func.count(), here).select_from(DeviceLogin)).one()
        if waiting >= _MOST or of_address >= _MOST_PER_ADDRESS:
            raise Problem(TOO_MANY_SIGN_INS, "many programs wait for a sign-in: try again in some minutes")
        session.add(
            DeviceLogin(
                device_sha256=device.sha256,
                user_code=code,
                client=body.client or "",
                address=address,
                project=body.project,
                expires_at=func.now() + LIFETIME,
            )
        )
    return DeviceCode(
        device_code=device.plain,
        user_code=code,
        path="/device",
        path_complete=f"/device?code={code}",
        expires_in=int(LIFETIME.total_seconds()),
        interval=INTERVAL,
    )


def poll(context: Context, plain: str) -> CreatedToken:
    """The token, if the user has confirmed the code: once.

    Raises:
        Problem: authorization_pending, slow_down, access_denied, expired_token.
    """
    sha256 = hash_token(plain) if plain.isascii() else ""
    with context.database.transaction() as session:
        query = select(DeviceLogin).where(DeviceLogin.device_sha256 == sha256, DeviceLogin.expires_at > func.now())
        row = session.scalars(query.with_for_update()).one_or_none()
        if row is None:
            must_record()
            raise Problem(EXPIRED_TOKEN, "this sign-in is not known here or has expired; begin another")
        hasty = select(func.now() - DeviceLogin.polled_at < _TOLERATED).where(DeviceLogin.device_sha256 == sha256)
        early = session.scalar(hasty)
        row.polled_at = func.now()
        denied, project = row.denied_at is not None, row.project
        confirmed = session.scalar(select(Token.sha256).where(Token.id == row.confirmed_with))
    if denied:
        must_record()
        raise Problem(ACCESS_DENIED, "the sign-in was refused on Weft's page")
    if confirmed is None:
        raise Problem(SLOW_DOWN if early else AUTHORIZATION_PENDING, f"ask again in {INTERVAL} s")
    must_record()
    who = find_principal(context, confirmed)
    if who is None:
        raise Problem(ACCESS_DENIED, "the session that confirmed this sign-in has ended")
    with context.database.transaction() as session:
        # Of two requests at the same time, one gets the token.
        gone = delete(DeviceLogin).where(DeviceLogin.device_sha256 == sha256).returning(DeviceLogin.device_sha256)
        if session.scalar(gone) is None:
            raise Problem(EXPIRED_TOKEN, "this sign-in has got its token already; begin another")
        return issue_login(context, session, who, _project(session, who, project), Once(None, "POST /device:token", ""))


def show(context: Context, code: str) -> DeviceView:
    """The program that waits under a code. Raises Problem not_found."""
    with context.database.transaction() as session:
        row = _waiting(session, code)
        return DeviceView(
            user_code=row.user_code,
            client=row.client,
            address=row.address,
            project=row.project,
            expires_at=row.expires_at,
        )


def confirm(context: Context, who: Principal, code: str, project: str | None) -> None:
    """Sign the waiting program in as ``who``.

    Raises:
        Problem: not_found, for the code and for a project that the user is not a member of; forbidden for another
            project than the token's; conflict if another user confirms the same code.
    """
    with context.database.transaction() as session:
        row = _waiting(session, code, lock=True)
        about("device", row.user_code)
        if row.confirmed_with is not None or row.denied_at is not None:
            raise Problem(CONFLICT, "this code has been answered already")
        row.project = _project(session, who, project or row.project).name
        row.confirmed_with = who.token_id


def deny(context: Context, code: str) -> None:
    """Refuse the waiting program. Raises Problem not_found."""
    with context.database.transaction() as session:
        row = _waiting(session, code, lock=True)
        about("device", row.user_code)
        session.execute(
            update(DeviceLogin)
            .where(DeviceLogin.device_sha256 == row.device_sha256)
            .values(denied_at=func.now(), confirmed_with=None)
        )


def _waiting(session: Session, code: str, lock: bool = False) -> DeviceLogin:
    letters = "".join(letter for letter in code.upper()[:40] if letter in _LETTERS)
    query = select(DeviceLogin).where(
        DeviceLogin.user_code == f"{letters[:4]}-{letters[4:]}", DeviceLogin.expires_at > func.now()
    )
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise Problem(NOT_FOUND, "no program waits under this code; codes are valid for 10 minutes")
    return row


def _project(session: Session, who: Principal, name: str | None) -> Project:
    if who.bound and name not in (None, who.project):
        raise Problem(FORBIDDEN, f"your session belongs to project {who.project!r}: sign in without a token")
    member = select(Project).join(Member, (Member.project_id == Project.id) & (Member.user_id == who.user_id))
    project = session.scalars(member.where(Project.name == (name or who.project))).one_or_none()
    if project is None:
        raise not_found("project", str(name)[:100])
    return project
