"""Tokens of attempts: the learner that calls, and whether its attempt is still open (fencing)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import func, or_, select, text
from sqlalchemy.orm import Session

from weft_api.access.auth import Bearer
from weft_api.access.rates import RATES
from weft_api.context import Context, Ctx
from weft_api.http.problems import STALE_ATTEMPT, UNAUTHENTICATED, Problem, invalid
from weft_core.service_log import note
from weft_core.store.models import Attempt, Job, Learner
from weft_core.tokens import ATTEMPT_PREFIX, hash_token


@dataclass(frozen=True)
class AttemptToken:
    """A token with the prefix of an attempt's. The lookup of the attempt comes with the rows that the call locks."""

    sha256: str


@dataclass(frozen=True)
class Accepted:
    """The job and the attempt of a call whose content is stored, by this call or by an earlier one."""

    job_id: str
    attempt: int


def _checked(context: Context, plain: str) -> AttemptToken:
    if not plain.startswith(ATTEMPT_PREFIX) or not plain.isascii():
        raise Problem(UNAUTHENTICATED, "only the token of an attempt opens the learner's API")
    token = AttemptToken(hash_token(plain))
    RATES.of(context).check_learner(token.sha256)
    return token


async def attempt_token(bearer: Bearer, context: Ctx) -> AttemptToken:
    """The token of a learner's call. Raises Problem unauthenticated, too_many_requests."""
    return _checked(context, bearer.credentials if bearer else "")


def attempt_token_of(context: Context, request: Request) -> AttemptToken:
    """The same, for routes without FastAPI's parameters."""
    scheme, _, plain = request.headers.get("authorization", "").partition(" ")
    return _checked(context, plain if scheme.lower() == "bearer" else "")


Token = Annotated[AttemptToken, Depends(attempt_token)]


def stale(detail: str) -> Problem:
    return Problem(STALE_ATTEMPT, f"{detail}: stop and exit")


def open_attempt(session: Session, token: AttemptToken) -> Attempt:
    """The attempt of this token, if it is still open. Raises Problem stale_attempt."""
    attempt = session.scalars(select(Attempt).where(Attempt.token_sha256 == token.sha256)).one_or_none()
    if attempt is None:
        raise stale("no attempt has this token (its job may have been deleted)")
    if attempt.ended_at is not None:
        raise stale(f"attempt {attempt.n} of job {attempt.job_id} has ended")
    note(job=attempt.job_id, attempt=attempt.n)
    return attempt


def fence(session: Session, token: AttemptToken, *, change: bool) -> tuple[Job, Attempt]:
    """The job and the open attempt of this token. Other transactions can change neither until this one ends.

    The job's row is the lock (always taken before any other, so that no two transactions wait for each other). A
    transaction that ends an attempt holds it, too.

    Args:
        change: this transaction changes the job's row; else others may hold it the same way.

    Raises:
        Problem: stale_attempt.
    """
    owner = select(Attempt.job_id).where(Attempt.token_sha256 == token.sha256).scalar_subquery()
    query = select(Job).where(Job.id == owner).with_for_update(read=not change, key_share=change)
    job = session.scalars(query).one_or_none()
    attempt = open_attempt(session, token)  # read after the lock is held
    assert job is not None  # an attempt has a job
    note(job=job.id, attempt=attempt.n)
    return job, attempt


def late_fence(session: Session, token: AttemptToken) -> tuple[Job, Attempt]:
    """Like ``fence`` without a change, for calls that are still accepted in the day after the attempt's end.

    Raises:
        Problem: stale_attempt.
    """
    owner = select(Attempt.job_id).where(Attempt.token_sha256 == token.sha256).scalar_subquery()
    job = session.scalars(select(Job).where(Job.id == owner).with_for_update(read=True)).one_or_none()
    recent = or_(Attempt.ended_at.is_(None), Attempt.ended_at > func.now() - text("interval '1 day'"))
    attempt = session.scalars(select(Attempt).where(Attempt.token_sha256 == token.sha256, recent)).one_or_none()
    if job is None or attempt is None:
        raise stale("no attempt has this token, or it ended more than a day ago")
    return job, attempt


def own_learner(session: Session, attempt: Attempt, rank: int, *, lock: bool = True) -> Learner:
    """The learner of this rank. Raises Problem invalid_request when the attempt has no such rank."""
    query = select(Learner).where(Learner.attempt_id == attempt.id, Learner.rank == rank)
    learner = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if learner is None:
        raise _no_rank(attempt, rank)
    return learner


def granted_learner(session: Session, attempt: Attempt, rank: int, instance: str, *, lock: bool = True) -> Learner:
    """The learner of this rank, if the calling agent holds its start grant. Raises Problem stale_attempt."""
    learner = own_learner(session, attempt, rank, lock=lock)
    if learner.instance != instance:
        raise _not_granted(rank)
    return learner


def granted_learners(session: Session, attempt: Attempt, agents: Sequence[tuple[int, str]]) -> list[Problem | None]:
    """The Problem that :func:`granted_learner` would raise for each (rank, instance), or None. Takes no lock."""
    ranks = {rank for rank, _ in agents}
    query = select(Learner.rank, Learner.instance).where(Learner.attempt_id == attempt.id, Learner.rank.in_(ranks))
    holders = {row.rank: row.instance for row in session.execute(query)}
    found: list[Problem | None] = []
    for rank, instance in agents:
        if rank not in holders:
            found.append(_no_rank(attempt, rank))
        else:
            found.append(None if holders[rank] == instance else _not_granted(rank))
    return found


def _no_rank(attempt: Attempt, rank: int) -> Problem:
    return invalid("rank", f"attempt {attempt.n} has no learner with rank {rank}", found=str(rank))


def _not_granted(rank: int) -> Problem:
    return stale(f"another agent, or none, holds the start grant of rank {rank}")


def present_learner(session: Session, attempt: Attempt, rank: int, instance: str, *, lock: bool = True) -> Learner:
    """The learner of this rank, if the calling agent holds its start grant and the gang has not gone on without it.

    Raises Problem stale_attempt.
    """
    learner = granted_learner(session, attempt, rank, instance, lock=lock)
    if learner.left_at is not None:
        raise stale(f"the others go on without learner {rank + 1}: {learner.left_reason}")
    return learner
