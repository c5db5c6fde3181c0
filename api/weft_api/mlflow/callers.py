"""Who calls: a user, with a token of the project; or a learner, with its attempt's token for MLflow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fastapi.security import HTTPAuthorizationCredentials
from sqlalchemy import func, or_, select, text
from sqlalchemy.orm import Session

from weft_api.access.attempts import stale
from weft_api.access.auth import Principal, by_token, within_rate
from weft_api.access.masks import MASKS, masked
from weft_api.access.rates import RATES
from weft_api.context import Context
from weft_api.http.audited import acting
from weft_api.http.problems import FORBIDDEN, UNAUTHENTICATED, Problem
from weft_core.service_log import note
from weft_core.store.models import ActorKind, Attempt, Job, Learner, Project
from weft_core.store.scope import Scope
from weft_core.tokens import MLFLOW_PREFIX, hash_token


@dataclass(frozen=True)
class LearnerToken:
    """A learner's token for MLflow: the derived secret of its attempt, and its rank."""

    sha256: str
    rank: int


@dataclass(frozen=True)
class OfLearner:
    """A learner, of an attempt that is open, or has just ended."""

    job: Job
    attempt: int
    rank: int
    processes: int
    """Processes of the program that may log at the same time."""
    open: bool


@dataclass(frozen=True)
class Caller:
    """``identity``: the id of the user's token, or of the learner's attempt."""

    identity: str
    project_id: str
    user: str
    editor: bool
    learner: OfLearner | None = None
    who: Principal | None = None
    """The user; None: a learner calls."""

    def scope(self, session: Session) -> Scope:
        return Scope(session, self.project_id)


def read_token(context: Context, bearer: HTTPAuthorizationCredentials | None) -> LearnerToken | str:
    """A learner's token, or the text of a user's. Raises Problem unauthenticated, too_many_requests."""
    if bearer is None:
        raise Problem(UNAUTHENTICATED, "send a token of yours: set MLFLOW_TRACKING_TOKEN")
    plain = bearer.credentials
    if not plain.startswith(MLFLOW_PREFIX):
        return plain
    secret, _, rank = plain.partition(".")
    if not plain.isascii() or not rank.isdigit() or len(rank) > 6:
        raise Problem(UNAUTHENTICATED, "this is no token for MLflow of a learner")
    token = LearnerToken(hash_token(secret), int(rank))
    RATES.of(context).check_learner(token.sha256)
    return token


def said(context: Context, token: LearnerToken | object, value: Any) -> Any:
    """The JSON value of a call: if a learner sends it, with the job's secrets masked.

    Call it outside of a transaction: the first call of an attempt begins one.
    """
    return masked(value, MASKS.of(context).of_attempt(token.sha256)) if isinstance(token, LearnerToken) else value


def user_of(context: Context, plain: str) -> Principal:
    """Raises Problem unauthenticated, too_many_requests."""
    return within_rate(context, by_token(context, plain))


def caller_of(who: Principal) -> Caller:
    return Caller(who.caller, who.project_id, who.user, who.may("editor"), who=who)


def find_learner(session: Session, token: LearnerToken, *, write: bool) -> Caller:
    """The learner of a token. With ``write``, the job's row is locked: until this transaction ends, nobody can end the
    attempt or change the job.

    Raises:
        Problem: stale_attempt.
    """
    found = find_learners(session, token.sha256, [token.rank], write=write)
    if not found:
        raise over()
    return found[token.rank]


def find_learners(session: Session, sha256: str, ranks: Collection[int], *, write: bool) -> dict[int, Caller]:
    """As :func:`find_learner`, by rank, the learners of an attempt that may call."""
    owner = select(Attempt.job_id).where(Attempt.mlflow_sha256 == sha256).scalar_subquery()
    query = select(Job).where(Job.id == owner)
    job = session.scalars(query.with_for_update(read=True) if write else query).one_or_none()
    if job is None:
        return {}
    # Loggers send the last values when the program ends, and a slow one may come late.
    recent = or_(Attempt.ended_at.is_(None), Attempt.ended_at > func.now() - text("interval '1 minute'"))
    rows = session.execute(
        select(Attempt.id, Project.name, Learner.rank, Attempt.n, Attempt.resources, Attempt.ended_at)
        .join(Project, Project.id == Attempt.project_id)
        .join(Learner, (Learner.attempt_id == Attempt.id) & Learner.rank.in_(ranks) & Learner.left_at.is_(None))
        .where(Attempt.mlflow_sha256 == sha256, recent)
    ).all()
    found = {}
    for attempt_id, project, rank, attempt, resources, ended in rows:
        acting(ActorKind.LEARNER, token_id=attempt_id, project=(job.project_id, project))
        note(job=job.id, attempt=attempt)
        learner = OfLearner(job, attempt, rank, max(1, int(resources.get("gpus", 0))), ended is None)
        found[rank] = Caller(attempt_id, job.project_id, f"learner-{rank + 1}", True, learner)
    return found


def over() -> Problem:
    return stale("this token for MLflow is valid only while its attempt runs, and the attempt is over")


def require_editor(caller: Caller) -> None:
    """Raises Problem forbidden."""
    if not caller.editor:
        raise Problem(FORBIDDEN, "this needs the role editor; this token has the role viewer, which may only read")
