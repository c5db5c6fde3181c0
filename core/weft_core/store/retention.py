"""Retention: for how long, and how much, a project keeps of jobs that have ended (docs/retention.md).

The installation's setting holds for each project that has none of its own. The workers remove the data beyond it
(``weft_workers.retention``), and note that on the job's row, so that a removed log is not taken for an empty log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import BigInteger, Boolean, ColumnElement, DateTime, ScalarSelect, cast, func, or_, select
from sqlalchemy.dialects.postgresql import JSONPATH
from sqlalchemy.orm import Session

from weft_core.settings import RetentionSettings
from weft_core.store.models import Attempt, Job, LogCursor, MetricCursor

KINDS = ("logs", "metrics", "results", "events", "code")
SIZED = ("logs", "metrics", "results")
"""The kinds that have a limit in bytes, too."""


@dataclass(frozen=True)
class Keep:
    """How many days something is kept, and how many bytes of it in the project; None: without limit."""

    days: int | None = None
    bytes: int | None = None

    @property
    def limits(self) -> bool:
        return self != Keep()

    def shortens(self, other: Keep) -> bool:
        """Whether this keeps nothing that ``other`` does not keep."""

        def within(own: int | None, most: int | None) -> bool:
            return most is None or (own is not None and own <= most)

        return within(self.days, other.days) and within(self.bytes, other.bytes)


def default_policy(settings: RetentionSettings) -> dict[str, Keep]:
    """What the installation keeps, by kind."""
    return {kind: Keep(**getattr(settings, kind).model_dump()) for kind in KINDS}


def policy(settings: RetentionSettings, own: Mapping[str, Any]) -> dict[str, Keep]:
    """What a project keeps, by kind; ``own``: as its row has it."""
    return default_policy(settings) | {kind: Keep(**kept) for kind, kept in own.items() if kind in KINDS}


def as_kept(own: Mapping[str, Keep]) -> dict[str, Any]:
    """The opposite: the retention of its own for a project's row."""
    return {kind: asdict(keep) for kind, keep in own.items()}


def not_removed(kind: str) -> ColumnElement[bool]:
    """Whether a job still has the data of its last end; it may have been resumed since something was removed."""
    at = Job.removed[kind]["at"].astext
    return or_(at.is_(None), cast(at, DateTime(timezone=True)) < Job.ended_at)


def size_of(kind: str) -> ScalarSelect[int]:
    """The bytes of a job, as a column beside Job. Of results, as learner 1 has reported them; without checkpoints."""
    if kind == "logs":
        return select(LogCursor.bytes).where(LogCursor.job_id == Job.id).correlate(Job).scalar_subquery()
    if kind == "metrics":
        return select(MetricCursor.bytes).where(MetricCursor.job_id == Job.id).correlate(Job).scalar_subquery()
    newest = (Attempt.job_id == Job.id) & (Attempt.n == Job.attempt)
    reported = cast(Attempt.outputs["bytes"].astext, BigInteger)
    return select(reported).where(newest).correlate(Job).scalar_subquery()


def held(session: Session, project_id: str, kind: str) -> int:
    """The bytes that the project has of one of the :data:`SIZED` kinds, running jobs included."""
    if kind == "results":
        mine = (Job.project_id == project_id) & not_removed(kind)
        query = select(func.sum(size_of(kind))).select_from(Job).where(mine, ~results_elsewhere())
    else:
        cursor = LogCursor if kind == "logs" else MetricCursor
        query = select(func.sum(cursor.bytes)).where(cursor.project_id == project_id)
    return int(session.scalar(query) or 0)


def results_elsewhere() -> ColumnElement[bool]:
    """Whether a job's manifest names a container for its results (``Manifest.results_place``, for many jobs)."""
    container = "@.training_results.container"
    path = f'$.data_stores[*] ? (exists({container}) && {container} != "" && !exists(@.mount))'
    return func.jsonb_path_exists(Job.manifest, cast(path, JSONPATH), type_=Boolean)
