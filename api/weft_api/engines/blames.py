"""The ledger of nodes that were blamed, for administrators: it names jobs of all projects."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.engines.schemas import BlameList, BlameView, Forgiven
from weft_api.engines.service import check_engine
from weft_api.http.problems import FORBIDDEN, NOT_FOUND, Problem
from weft_core.store import blames
from weft_core.store.models import NodeBlame

_MOST = 200


def list_blames(context: Context, session: Session, who: Principal, name: str) -> BlameList:
    """The newest rows of an engine's ledger. Raises Problem not_found or forbidden."""
    _check(context, who, name)
    rows = select(NodeBlame).where(NodeBlame.engine == name).order_by(NodeBlame.id.desc()).limit(_MOST)
    return BlameList(
        blames=[
            BlameView(
                node=row.node,
                job=row.job,
                project=row.project,
                attempt=row.attempt,
                reason=row.reason,
                created_at=row.created_at,
                forgiven_at=row.forgiven_at,
            )
            for row in session.scalars(rows)
        ]
    )


def forgive(context: Context, session: Session, who: Principal, name: str, node: str) -> Forgiven:
    """Let learners run on a node again. Raises Problem forbidden, or not_found for an engine or a node that the ledger
    does not have."""
    _check(context, who, name)
    count = blames.forgive(session, name, node)
    if not count:
        raise Problem(NOT_FOUND, f"no job blames node {node[:100]!r} of engine {name}, or it is forgiven already")
    return Forgiven(forgiven=count)


def _check(context: Context, who: Principal, name: str) -> None:
    check_engine(context, name)  # before the role: everybody may know which engines there are
    if not who.admin:
        raise Problem(FORBIDDEN, "this is for administrators of the installation")
