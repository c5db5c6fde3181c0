"""The right to open a tunnel, and the learner that it leads to."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_api.access.auth import RANK, Principal
from weft_api.access.lookups import find_job
from weft_api.context import Context
from weft_api.http.problems import CONFLICT, FORBIDDEN, Problem, not_found
from weft_core.store.models import Attempt, Learner, Member, Project
from weft_core.store.scope import Scope


def find_learner(context: Context, who: Principal, job_id: str, number: int) -> tuple[str, int]:
    """The SHA-256 of the attempt's token, and the rank, of a learner that runs.

    Args:
        number: from 1.

    Raises:
        Problem: forbidden, not_found, conflict.
    """
    with context.database.transaction() as session:
        scope = who.scope(session)
        job = find_job(scope, job_id)
        if not _open_in(scope, who.project_id):
            raise Problem(FORBIDDEN, f"project {who.project!r} lets nobody into its running jobs: its owners may")
        attempt = scope.find(Attempt, Attempt.job_id == job.id, Attempt.ended_at.is_(None))
        if attempt is None:
            raise Problem(CONFLICT, f"the job is {job.state}: no learner of it runs")
        learner = scope.find(Learner, Learner.attempt_id == attempt.id, Learner.rank == number - 1)
        if learner is None:
            raise not_found("learner", str(number))
        if learner.left_at is not None:
            raise Problem(CONFLICT, f"the others go on without learner {number}: {learner.left_reason}")
        return attempt.token_sha256, learner.rank


def still_allowed(context: Context, who: Principal) -> bool:
    """Whether a user with an open tunnel still has the right to open one."""
    with context.database.transaction() as session:
        scope = who.scope(session)
        role = session.scalar(
            select(Member.role).where(Member.project_id == scope.project_id, Member.user_id == who.user_id)
        )
        return role is not None and RANK[role] >= RANK["editor"] and _open_in(scope, who.project_id)


def _open_in(scope: Scope, project_id: str) -> bool:
    session: Session = scope.session
    return bool(session.scalar(select(Project.tunnels).where(Project.id == project_id)))
