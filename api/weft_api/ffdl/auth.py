"""The caller of a request of FfDL's clients, which send HTTP Basic and ``X-Watson-Userinfo`` with every call.

A token is accepted as the user name in both (with any password), as the password of its user, and as a bearer token. A
user name alone in the header identifies nobody, although FfDL trusted it.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import Annotated

from fastapi import Depends
from sqlalchemy import select
from starlette.requests import HTTPConnection

from weft_api.access.auth import Principal, address_of, by_token, find_member, within_rate
from weft_api.access.passwords import check_password
from weft_api.access.turns import TakesTurn
from weft_api.context import Context, Ctx
from weft_api.ffdl.verified_passwords import VERIFIED_PASSWORDS
from weft_api.http.problems import CROSS_SITE, FORBIDDEN, UNAUTHENTICATED, Problem, invalid
from weft_core.store.models import Member, Project, User
from weft_core.tokens import USER_PREFIX

_WRONG = "wrong user name or password"


def _authenticate(turn: TakesTurn, connection: HTTPConnection, context: Ctx) -> Principal:
    who = _signed_in(connection, context)
    turn.accepted(who.caller)
    return within_rate(context, replace(who, address=address_of(connection)))


def _signed_in(connection: HTTPConnection, context: Context) -> Principal:
    known = connection.headers.get("origin") in context.settings.api.ffdl_origins
    if not known and connection.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        # Browsers add a password that was typed once to every request that any page makes.
        raise Problem(CROSS_SITE, "this API is not for pages of other sites")
    scheme, _, given = connection.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() == "basic":
        name, password = _basic(given.strip())
        return _by_name(context, name, password, address_of(connection))
    if scheme.lower() == "bearer":
        return by_token(context, given.strip())
    if scheme:
        raise Problem(UNAUTHENTICATED, "send 'Authorization: Basic …' with a user and password, or a token as the user")
    name = _instance(connection.headers.get("x-watson-userinfo", ""))
    if name.startswith(USER_PREFIX):
        return by_token(context, name)
    raise Problem(UNAUTHENTICATED, "sign in by HTTP Basic with a user and password, or a token as the user name")


def _basic(given: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise Problem(UNAUTHENTICATED, "not valid HTTP Basic: expected base64 of user:password, as UTF-8")
    return name, password


def _instance(header: str) -> str:
    """The value of ``bluemix-instance-id`` in ``k=v;k=v``."""
    for part in header.split(";"):
        key, _, value = part.strip().partition("=")
        if key == "bluemix-instance-id":
            return value.strip()
    return ""


def _by_name(context: Context, name: str, password: str, address: str) -> Principal:
    if name.startswith(USER_PREFIX):
        return by_token(context, name)
    project, slash, user = name.rpartition("/")  # no name of a user has a slash
    if password.startswith(USER_PREFIX):
        who = by_token(context, password)
        if who.user != user or (slash and who.project != project):
            raise Problem(UNAUTHENTICATED, _WRONG)
        return who
    found = _member(context, *_user(context, user, password, address), project if slash else None)
    if found is None:
        raise Problem(UNAUTHENTICATED, _WRONG)
    return found


def _user(context: Context, name: str, password: str, address: str) -> tuple[str, str]:
    """The id of the user whose password this is, and the hash of the password."""
    if "\0" in name or len(name) > 100:
        raise Problem(UNAUTHENTICATED, _WRONG)
    query = select(User.id, User.password_hash).where(User.name == name)
    with context.database.transaction() as session:
        row = session.execute(query).one_or_none()
    if row and row.password_hash and VERIFIED_PASSWORDS.of(context).knows(row.id, row.password_hash, password):
        return row.id, row.password_hash
    user = check_password(context, name, password, address)
    if user.password_hash:
        VERIFIED_PASSWORDS.of(context).add(user.id, user.password_hash, password)
    return user.id, user.password_hash or ""


def _member(context: Context, user_id: str, password_hash: str, project: str | None) -> Principal | None:
    query = select(Project.id, Project.name).join(Member, Member.project_id == Project.id)
    query = query.where(Member.user_id == user_id).order_by(Project.name)
    with context.database.transaction() as session:
        rows = session.execute(query).all()
    found = [row for row in rows if project in (None, row.name)]
    if len(found) > 1:
        names = ", ".join(row.name for row in found)
        raise invalid(
            "user", f"you are a member of several projects ({names}): sign in as PROJECT/USER, or with a token as user"
        )
    return find_member(context, user_id, found[0].id, password_hash) if found else None


def _editor(who: Annotated[Principal, Depends(_authenticate)]) -> Principal:
    if not who.may("editor"):
        raise Problem(FORBIDDEN, f"this needs the role editor; in project {who.project!r} you are {who.role}")
    return who


Viewer = Annotated[Principal, Depends(_authenticate)]
Editor = Annotated[Principal, Depends(_editor)]
