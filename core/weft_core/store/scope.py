"""The one tenant-scoped door: every query for a tenant's rows is made by a :class:`Scope`.

A row of another project is not found, which the API answers with 404, never 403: a 403 would reveal that the row
exists.
"""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy import ColumnElement, FromClause, Select, Subquery, select
from sqlalchemy.orm import Session

from weft_core.store.models import Base, MlflowRun
from weft_core.store.row_security import VIEWS, confine, view_of

Row = TypeVar("Row", bound=Base)


class Scope:
    """A session that sees one project only.

    Args:
        session: an open session; the caller owns its transaction. In the API, Postgres shows the rest of the
            transaction this project only, also to statements that this class has not made
            (:mod:`weft_core.store.row_security`).
        project_id: the tenant.

    Raises:
        RuntimeError: the transaction is another project's.
    """

    def __init__(self, session: Session, project_id: str) -> None:
        confine(session, project_id)
        self.session = session
        self.project_id = project_id

    def select(self, model: type[Row], *conditions: Any) -> Select[Row]:
        """A SELECT of ``model`` that is limited to this project, to be refined further."""
        return select(model).where(_project_column(model) == self.project_id, *conditions)

    def listed(self, model: type[Base]) -> Subquery:
        """The project's rows of ``model``, to be filtered and ordered by: those columns that lists need, of jobs that
        train. It has a name of its own at each call.

        Below a policy, Postgres uses an index for few conditions only (:data:`weft_core.store.row_security.VIEWS`).
        """
        columns, conditions = VIEWS[model.__tablename__].c.keys(), []
        table = view_of(self.session, model)
        if table is model.__table__ and "kind" in table.c:
            conditions.append(table.c.kind == "train")
        if table is MlflowRun.__table__:
            conditions.append(table.c.job_id == table.c.id)  # a job's own run
        rows = select(*(table.c[name] for name in columns)).where(*self._own(table), *conditions)
        return rows.subquery()

    def _own(self, table: FromClause) -> list[ColumnElement[bool]]:
        return [table.c.project_id == self.project_id]

    def all(self, statement: Select[Row]) -> list[Row]:
        """The rows of a statement made by :meth:`select`."""
        return list(self.session.scalars(statement))

    def find(self, model: type[Row], *conditions: Any, lock: bool = False) -> Row | None:
        """The one row that matches, or None; with ``lock``, locked until the transaction ends (FOR UPDATE)."""
        statement = self.select(model, *conditions)
        if lock:
            statement = statement.with_for_update()
        return self.session.scalars(statement).one_or_none()

    def add(self, row: Row) -> Row:
        """Insert ``row`` as this project's."""
        row.project_id = self.project_id  # type: ignore[attr-defined]
        self.session.add(row)
        return row


def _project_column(model: type[Base]) -> Any:
    if "project_id" not in model.__table__.columns:
        raise TypeError(f"{model.__name__} belongs to no project: it can't be read through a Scope")
    return model.__table__.columns["project_id"]
