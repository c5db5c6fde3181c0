"""The load of the engines. Engines belong to no project: their numbers are of the whole installation."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_api.context import Context
from weft_api.engines.schemas import Amounts, CatalogueView, EngineView, ImageView
from weft_core.lifecycle import JobState
from weft_core.store.models import Attempt, EngineStatus, Job


def list_engines(context: Context, session: Session) -> list[EngineView]:
    """The engines of the settings, with what the workers last saw of them."""
    seen = {row.name: row for row in session.scalars(select(EngineStatus))}
    waiting = select(Job.engine, func.count()).where(Job.state == JobState.QUEUED.value).group_by(Job.engine)
    queued = dict(session.execute(waiting).all())
    opened: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for engine, resources in session.execute(
        select(Attempt.engine, Attempt.resources).where(Attempt.ended_at.is_(None))
    ):
        opened[engine].append(resources)
    return [
        _view(
            name, one.type, name == context.settings.default_engine, seen.get(name), queued.get(name, 0), opened[name]
        )
        for name, one in context.settings.engines.items()
    ]


def _view(
    name: str, kind: str, default: bool, row: EngineStatus | None, queued: int, opened: list[dict[str, Any]]
) -> EngineView:
    capacity = _capacity(row.capacity) if row and row.capacity else None
    return EngineView(
        name=name,
        type=kind,
        default=default,
        capacity=capacity,
        free=_less(capacity, opened) if capacity else None,
        seen_at=row.seen_at if row else None,
        unreachable_since=row.unreachable_since if row else None,
        error=row.error if row else None,
        queued=queued,
        running=len(opened),
    )


def _capacity(kept: dict[str, Any]) -> Amounts:
    return Amounts(cpus=kept.get("cpus", 0), gpus=kept.get("gpus", 0), memory=kept.get("memory", 0))


def _less(capacity: Amounts, opened: list[dict[str, Any]]) -> Amounts:
    def used(what: str) -> float:
        return sum(float(one.get(what) or 0) * int(one.get("learners", 1)) for one in opened)

    return Amounts(
        cpus=max(0.0, capacity.cpus - used("cpus")),
        gpus=max(0, capacity.gpus - int(used("gpus"))),
        memory=max(0, capacity.memory - int(used("memory"))),
    )


def show_catalogue(context: Context) -> CatalogueView:
    return CatalogueView(
        images=[
            ImageView(
                reference=image.reference,
                name=image.name,
                version=image.version,
                frameworks=list(image.frameworks),
                launchers=list(image.launchers),
                default_launcher=image.default_launcher,
            )
            for image in context.catalogue.images
        ],
        aliases=context.catalogue.aliases | context.settings.images.aliases,
    )
