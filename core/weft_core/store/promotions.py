"""A promotion of a model starts the jobs of the schedules whose ``on`` names its stage."""

from __future__ import annotations

from sqlalchemy import func, update

from weft_core.store.models import Model, ModelPromotion, ScheduleRow, ScheduleState, Start, StartState, Trigger
from weft_core.store.scope import Scope


def note_promotion(scope: Scope, model: Model, promotion: ModelPromotion) -> None:
    """Note a start for each active schedule of the stage, in the promotion's transaction. Workers make the jobs."""
    if promotion.number is None:
        return
    listens = (
        update(ScheduleRow)
        .where(ScheduleRow.project_id == scope.project_id, ScheduleRow.state == ScheduleState.ACTIVE)
        .where(ScheduleRow.model == model.name, ScheduleRow.stage == promotion.stage)
        .values(next_step_at=func.now())
        .returning(ScheduleRow.id)
    )
    for schedule_id in scope.session.scalars(listens).all():
        scope.add(
            Start(
                schedule_id=schedule_id,
                trigger=Trigger.PROMOTION.value,
                promotion_id=promotion.id,
                version=promotion.number,
                user_id=promotion.user_id,
                state=StartState.DUE.value,
            )
        )
