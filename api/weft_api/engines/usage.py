"""How much of the engines jobs have held over time, and who held it: from the attempts and what admission counted.

An attempt holds its resources from its admission until its learners are gone, whatever it makes of them.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import CTE, ColumnElement, Float, Integer, Select, case, cast, func, select, union_all
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.engines.schemas import EngineUse, PersonUse, UsageView, UsePoint
from weft_api.http.audited import must_record
from weft_api.http.problems import FORBIDDEN, Problem, invalid
from weft_core.store.models import Attempt, Job, Project, User
from weft_core.store.row_security import across_projects

MOST_HOURS = 2208
"""92 days."""
_POINTS = 96

_LEARNERS = cast(func.coalesce(Attempt.resources["learners"].astext, "1"), Float)
_CPUS = cast(func.coalesce(Attempt.resources["cpus"].astext, "0"), Float) * _LEARNERS
_GPUS = cast(func.coalesce(Attempt.resources["gpus"].astext, "0"), Float) * _LEARNERS


@dataclass(frozen=True)
class Span:
    """The time that is asked for: ``hours`` until its end, unless it has a beginning."""

    hours: int
    since: datetime | None = None
    until: datetime | None = None

    def ends(self, now: datetime) -> tuple[datetime, datetime]:
        """Raises Problem invalid_request."""
        until = min(self.until or now, now)
        since = self.since or until - timedelta(hours=self.hours)
        if not since < until <= since + timedelta(hours=MOST_HOURS):
            accepted = f"a time before the end ({until.isoformat()}), and at most {MOST_HOURS:,} hours before it"
            raise invalid(
                "query.since", "not a time that begins such a span", found=since.isoformat(), accepted=accepted
            )
        return since, until


def show_usage(session: Session, who: Principal, span: Span, everybody: bool) -> UsageView:
    """The use of all engines, and the members' shares in it. Raises Problem: forbidden for another project's members;
    invalid_request."""
    if everybody and not who.admin:
        raise Problem(FORBIDDEN, "only an administrator sees the use of all projects: leave out `everybody`")
    if everybody:
        must_record("usage.read")
    who.scope(session)
    with across_projects(session):
        since, until = span.ends(session.execute(select(func.now())).scalar_one())
        people = _people(session, since, until, None if everybody else who.project_id)
        return UsageView(since=since, until=until, engines=_engines(session, since, until), people=people)


def as_csv(usage: UsageView) -> str:
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["project", "user", "since", "until", "attempts", "cpu_hours", "gpu_hours"])
    span = [usage.since.isoformat(), usage.until.isoformat()]
    for row in usage.people:
        rows.writerow([row.project, row.user, *span, row.attempts, f"{row.cpu_hours:.4f}", f"{row.gpu_hours:.4f}"])
    return out.getvalue()


def _people(session: Session, since: datetime, until: datetime, project_id: str | None) -> list[PersonUse]:
    attempts = _attempts(since, until, project_id)
    begin = func.greatest(attempts.c.created_at, since)
    end = func.least(func.coalesce(attempts.c.ended_at, until), until)
    held = cast(func.greatest(func.extract("epoch", end - begin), 0), Float) / 3600
    gpu_hours = func.sum(held * attempts.c.gpus).label("gpu_hours")
    cpu_hours = func.sum(held * attempts.c.cpus).label("cpu_hours")
    rows = (
        select(Project.name, User.name, func.count(), cpu_hours, gpu_hours)
        .select_from(attempts)
        .join(Job, Job.id == attempts.c.job_id)
        .join(Project, Project.id == attempts.c.project_id)
        .join(User, User.id == Job.user_id)
        .group_by(Project.name, User.name)
        .order_by(gpu_hours.desc(), cpu_hours.desc(), Project.name, User.name)
    )
    return [
        PersonUse(project=project, user=user, attempts=attempts, cpu_hours=cpus, gpu_hours=gpus)
        for project, user, attempts, cpus, gpus in session.execute(rows)
    ]


def _attempts(since: datetime, until: datetime, project_id: str | None = None) -> CTE:
    """Those that have not ended, and those that have ended since: each part along an index of its own. Of both, those
    that have begun before ``until``."""
    columns = (Attempt.job_id, Attempt.project_id, Attempt.engine, Attempt.created_at, Attempt.ended_at)
    rows = select(*columns, _CPUS.label("cpus"), _GPUS.label("gpus")).where(Attempt.created_at < until)
    if project_id is not None:
        rows = rows.where(Attempt.project_id == project_id)
    return union_all(rows.where(Attempt.ended_at.is_(None)), rows.where(Attempt.ended_at > since)).cte("held")


def _engines(session: Session, since: datetime, until: datetime) -> list[EngineUse]:
    """The mean amounts held in each of equal parts of the time. An attempt adds its amount where it begins and takes it
    away where it ends, so that an attempt costs the same however long it lasts."""
    width = (until - since) / _POINTS
    attempts = _attempts(since, until)
    begun, ended = (_edges(attempts, *edge) for edge in ((attempts.c.created_at, 1), (attempts.c.ended_at, -1)))
    edges = union_all(begun, ended.where(attempts.c.ended_at < until)).subquery()
    offset = cast(func.extract("epoch", edges.c.at - since), Float) / width.total_seconds()
    part = func.greatest(0, func.least(_POINTS - 1, cast(func.floor(offset), Integer)))
    rest = case((offset < 0, 1.0), else_=func.least(1.0, part + 1 - offset))  # of the part, behind the edge
    rows = select(
        edges.c.engine,
        part,
        func.sum(edges.c.cpus),
        func.sum(edges.c.cpus * rest),
        func.sum(edges.c.gpus),
        func.sum(edges.c.gpus * rest),
    ).group_by(edges.c.engine, part)
    found: dict[str, dict[int, tuple[float, ...]]] = defaultdict(dict)
    for engine, number, *sums in session.execute(rows):
        found[engine][number] = tuple(sums)
    engines = []
    for engine, parts in sorted(found.items()):
        cpus = gpus = 0.0
        points = []
        for number in range(_POINTS):
            all_cpus, these_cpus, all_gpus, these_gpus = parts.get(number, (0.0, 0.0, 0.0, 0.0))
            held = (round(max(0.0, cpus + these_cpus), 3), round(max(0.0, gpus + these_gpus), 3))
            points.append(UsePoint(at=since + width * (number + 1), cpus=held[0], gpus=held[1]))
            cpus, gpus = cpus + all_cpus, gpus + all_gpus
        engines.append(EngineUse(name=engine, points=points))
    return engines


def _edges(attempts: CTE, at: ColumnElement[datetime], sign: int) -> Select[Any]:
    held = (attempts.c.cpus * sign).label("cpus"), (attempts.c.gpus * sign).label("gpus")
    return select(attempts.c.engine, at.label("at"), *held)
