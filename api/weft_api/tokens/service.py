"""Signing in, and keeping tokens."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal, limit_of, revoke
from weft_api.access.budgets import BudgetView
from weft_api.access.passwords import check_password
from weft_api.context import Context
from weft_api.http.audited import about, acting
from weft_api.http.idempotency import Once
from weft_api.http.problems import UNAUTHENTICATED, Problem, invalid, not_found
from weft_api.tokens.schemas import CreatedToken, LoginBody, TokenBody, TokenView
from weft_core.ids import new_id
from weft_core.store.budgets import standings
from weft_core.store.models import ActorKind, Budget, Member, Project, Token, User
from weft_core.store.scope import Scope
from weft_core.tokens import new_token

_LOGIN_DAYS = 90


@dataclass(frozen=True)
class _Owner:
    """The user and the project of a new token."""

    user_id: str
    user: str
    project_id: str
    project: str
    parent: str | None = None
    """The token that the new one ends with."""
    limit: str | None = None
    """The most that the new one may do."""
    budget: str | None = None
    """The budget of the token behind it, which the new one shares."""


def list_tokens(scope: Scope, who: Principal) -> list[TokenView]:
    """The user's own tokens and sessions in this project; an owner sees everyone's. Ended sessions are left out."""
    over = (Token.kind == "browser") & (Token.expires_at <= func.now())
    query = scope.select(Token, Token.revoked_at.is_(None), ~over).order_by(Token.created_at, Token.id)
    if not who.may("owner"):
        query = query.where(Token.user_id == who.user_id)
    rows = scope.all(query)
    users = select(User.id, User.name).where(User.id.in_({row.user_id for row in rows}))
    names = dict(scope.session.execute(users).all())
    budgets = budgets_of(scope, {row.budget_id for row in rows if row.budget_id is not None})
    views = [_view(row, names[row.user_id], budgets.get(row.budget_id or "")) for row in rows]
    return [view.model_copy(update={"current": row.id == who.token_id}) for row, view in zip(rows, views, strict=True)]


def budgets_of(scope: Scope, budget_ids: Collection[str]) -> dict[str, BudgetView]:
    """These budgets, by id."""
    return {key: BudgetView.of(found) for key, found in standings(scope.session, budget_ids).items()}


def create_token(context: Context, who: Principal, body: TokenBody, once: Once) -> CreatedToken:
    """Make a token with the caller's own rights, or fewer. The same Idempotency-Key gets the same token again.

    A token that a token made, directly or through a session, ends with it.

    Raises:
        Problem: invalid_request for a higher role than the caller's.
    """
    if body.role is not None and not who.may(body.role):
        raise invalid("body.role", f"you are {who.role} here", accepted=f"no higher role than {who.role}")
    role = body.role or who.limit
    owner = _Owner(who.user_id, who.user, who.project_id, who.project, who.parent, role, who.budget)
    _check_budget(who, body)
    with context.database.transaction() as session:
        return _issue(context, session, owner, body.name, body.expires_in_days, once, body.gpu_hours)


def _check_budget(who: Principal, body: TokenBody) -> None:
    if who.budget is not None and body.gpu_hours is not None:
        message = "your token has a budget, which the tokens that it makes share"
        raise invalid("body.gpu_hours", message, found=str(body.gpu_hours), accepted="no gpu_hours")


def revoke_token(scope: Scope, who: Principal, token_id: str) -> None:
    """Raises Problem not_found: also for the token of another user, unless the caller is an owner. A token with a role
    of its own ends itself and what it has made, and as an owner all."""
    row = scope.find(Token, Token.id == token_id, Token.revoked_at.is_(None))
    theirs = row is not None and row.user_id == who.user_id
    if row is not None and who.limit is not None:
        theirs = who.parent in (row.id, row.opened_with)
    if row is None or not (theirs or who.may("owner")):
        raise not_found("token", token_id[:100])
    revoke(scope.session, [row.id])


def login(context: Context, body: LoginBody, address: str) -> CreatedToken:
    """Exchange a password for a token.

    Raises:
        Problem: as :func:`check_password`; invalid_request when the user is a member of several projects, named none.
    """
    user = check_password(context, body.user, body.password.get_secret_value(), address)
    with context.database.transaction() as session:
        project = _choose_project(session, user, body.project)
        acting(ActorKind.PASSWORD, project=(project.id, project.name))
        owner = _Owner(user.id, user.name, project.id, project.name)
        return _issue(context, session, owner, "login", _LOGIN_DAYS, Once(None, "POST /login", ""))


def issue_login(context: Context, session: Session, who: Principal, project: Project, once: Once) -> CreatedToken:
    """The token of a program that ``who`` signs in to a project. It ends with the token behind the caller, if any."""
    owner = _Owner(who.user_id, who.user, project.id, project.name, who.parent, who.limit, who.budget)
    return _issue(context, session, owner, "login", _LOGIN_DAYS, once)


def issue_service_token(
    context: Context, session: Session, who: Principal, account: User, body: TokenBody, role: str, once: Once
) -> CreatedToken:
    """A token of a service account with ``role``. It ends with the token behind the caller, if any."""
    owner = _Owner(account.id, account.name, who.project_id, who.project, who.parent, role, who.budget)
    _check_budget(who, body)
    return _issue(context, session, owner, body.name, body.expires_in_days, once, body.gpu_hours)


def _choose_project(session: Session, user: User, name: str | None) -> Project:
    query = select(Project).join(Member, Member.project_id == Project.id).where(Member.user_id == user.id)
    projects = session.scalars(query.order_by(Project.name)).all()
    if name is not None:
        projects = [project for project in projects if project.name == name]
    if len(projects) == 1:
        return projects[0]
    if not projects:
        raise Problem(UNAUTHENTICATED, f"{user.name!r} is no member of " + (f"{name!r}" if name else "any project"))
    raise invalid(
        "body.project", "you are a member of several projects", accepted=", ".join(project.name for project in projects)
    )


def _issue(
    context: Context,
    session: Session,
    owner: _Owner,
    name: str,
    days: int | None,
    once: Once,
    gpu_hours: float | None = None,
) -> CreatedToken:
    scope = Scope(session, owner.project_id)
    token = new_token("user")
    # The answer to a repeated request contains the token, of which otherwise only a hash is kept. So the token is kept
    # encrypted together with the key, which expires.
    mine = json.dumps({"id": new_id("tok"), "sealed": context.box.encrypt(token.plain).decode()})
    kept = once.claim(scope, mine)
    made = json.loads(kept)
    if kept == mine:
        wanted = func.now() + timedelta(days=days) if days else None
        limit = limit_of(session, owner.parent) if owner.parent else None
        ends = [end for end in (wanted, limit) if end is not None]
        budget_id = owner.budget
        if gpu_hours is not None:
            budget_id = new_id("bud")
            scope.add(Budget(id=budget_id, name=name, gpu_seconds=gpu_hours * 3600))
            session.flush()
        scope.add(
            Token(
                id=made["id"],
                user_id=owner.user_id,
                name=name,
                prefix=token.prefix,
                sha256=token.sha256,
                expires_at=func.least(*ends) if ends else None,
                opened_with=owner.parent,
                role=owner.limit,
                budget_id=budget_id,
            )
        )
        session.flush()
    row = scope.find(Token, Token.id == made["id"])
    if row is None:
        raise not_found("token", made["id"])
    about("token", row.id)
    plain = context.box.decrypt(made["sealed"].encode())
    budget = budgets_of(scope, [row.budget_id]).get(row.budget_id) if row.budget_id else None
    return CreatedToken(**_view(row, owner.user, budget).model_dump(), token=plain, project=owner.project)


def _view(row: Token, user: str, budget: BudgetView | None) -> TokenView:
    return TokenView(
        id=row.id,
        kind=row.kind,
        name=row.name,
        prefix=row.prefix,
        user=user,
        role=row.role,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        budget=budget,
    )
