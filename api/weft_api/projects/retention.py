"""The retention of projects: which data of ended jobs they keep."""

from __future__ import annotations

from sqlalchemy import func
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.http.problems import FORBIDDEN, Problem
from weft_api.projects.schemas import KeptView, RetentionBody, RetentionView
from weft_api.projects.service import find_project, owned_project
from weft_core.store.models import Project
from weft_core.store.retention import KINDS, SIZED, Keep, as_kept, default_policy, held, policy
from weft_core.words import count, size


def show(context: Context, session: Session, who: Principal, name: str) -> RetentionView:
    """Raises Problem not_found."""
    return _view(context, session, find_project(session, who, name))


def change(context: Context, session: Session, who: Principal, name: str, body: RetentionBody) -> RetentionView:
    """Raises Problem not_found; forbidden unless the caller owns the project, and keeps no more than the installation,
    or is an administrator."""
    project = owned_project(session, who, name)
    own = {kind: Keep(**kept) for kind, kept in body.model_dump(exclude_none=False).items() if kept is not None}
    kept_so_far = policy(context.settings.retention, project.retention)
    for kind, most in default_policy(context.settings.retention).items():
        wanted = own.get(kind, most)
        if not who.admin and wanted != kept_so_far[kind] and not wanted.shortens(most):
            raise Problem(
                FORBIDDEN,
                f"{kind}: only an administrator may keep more than the installation, which keeps {_words(most)}",
            )
    project.retention = as_kept(own)
    project.retention_due = func.now()
    session.flush()
    session.refresh(project)
    return _view(context, session, project)


def _words(keep: Keep) -> str:
    limits = [count(keep.days, "day")] if keep.days is not None else []
    return " and ".join(limits + ([size(keep.bytes)] if keep.bytes is not None else [])) or "everything"


def _view(context: Context, session: Session, project: Project) -> RetentionView:
    keeps = policy(context.settings.retention, project.retention)
    views = {}
    for kind in KINDS:
        removed = project.removed.get(kind, {})
        views[kind] = KeptView(
            days=keeps[kind].days,
            bytes=keeps[kind].bytes,
            own=kind in project.retention,
            held=held(session, project.id, kind) if kind in SIZED else None,
            removed=removed.get("number", 0),
            removed_bytes=removed.get("bytes", 0),
            removed_at=removed.get("at"),
        )
    return RetentionView(**views)
