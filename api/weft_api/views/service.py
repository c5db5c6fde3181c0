"""Keeping saved views."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from weft_api.access.auth import Principal
from weft_api.http.problems import CONFLICT, Problem, not_found
from weft_api.views.schemas import ViewView
from weft_core.store.models import User, View
from weft_core.store.scope import Scope

_MOST = 200
"""Views of a project."""


def list_views(scope: Scope) -> list[ViewView]:
    return _read(scope)


def put_view(scope: Scope, who: Principal, name: str, query: str) -> ViewView:
    """Save ``query`` under ``name``, whatever was there. Raises Problem conflict if the project has too many views."""
    others = scope.select(View, View.name != name).with_only_columns(func.count())
    if (scope.session.scalar(others) or 0) >= _MOST:
        raise Problem(CONFLICT, f"the project has {_MOST} saved views already: delete a view first")
    row = insert(View).values(project_id=scope.project_id, name=name, query=query, user_id=who.user_id)
    changes = {"query": row.excluded.query, "user_id": row.excluded.user_id, "updated_at": func.now()}
    scope.session.execute(row.on_conflict_do_update(index_elements=["project_id", "name"], set_=changes))
    (view,) = _read(scope, name)
    return view


def delete_view(scope: Scope, name: str) -> None:
    """Raises Problem not_found."""
    row = scope.find(View, View.name == name)
    if row is None:
        raise not_found("view", name)
    scope.session.delete(row)


def _read(scope: Scope, name: str | None = None) -> list[ViewView]:
    rows = scope.all(scope.select(View, *([View.name == name] if name is not None else [])).order_by(View.name))
    ids = {row.user_id for row in rows}
    users = dict(scope.session.execute(select(User.id, User.name).where(User.id.in_(ids))).all()) if ids else {}
    return [
        ViewView(name=row.name, query=row.query, user=users[row.user_id], updated_at=row.updated_at) for row in rows
    ]
