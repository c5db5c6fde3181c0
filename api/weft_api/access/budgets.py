"""The budget of the caller's token: what it refuses at a submit, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.http.problems import BUDGET_USED_UP, FieldProblem, Problem
from weft_core.store.budgets import Standing, gpus_of, hours, need, standings
from weft_core.store.scope import Scope


class BudgetView(BaseModel):
    model_config = ConfigDict(
        title="Budget", json_schema_extra={"examples": [{"gpu_hours": 10, "used": 2.5, "reserved": 4, "left": 3.5}]}
    )

    gpu_hours: float = Field(description="The GPU-hours that the jobs of the token may use in all.")
    used: float = Field(description="GPU-hours that attempts which have ended have used.")
    reserved: float = Field(description="GPU-hours that attempts which have not ended may still use.")
    left: float = Field(description="GPU-hours that further jobs can have.")

    @classmethod
    def of(cls, standing: Standing) -> BudgetView:
        amounts = (standing.limit, standing.used, standing.reserved, standing.left)
        return cls(**dict(zip(cls.model_fields, (round(amount / 3600, 6) for amount in amounts), strict=True)))


def refuse_without_limit(who: Principal, manifest: Mapping[str, Any], learners: int) -> FieldProblem | None:
    """What a budget lacks in a manifest: a time limit, of which the reservation is made."""
    if who.budget is None or not gpus_of(manifest, learners) or manifest.get("max_runtime_seconds"):
        return None
    message = "missing: this token has a budget of GPU-hours, of which a job reserves its GPUs for its time limit"
    return FieldProblem(path="max_runtime", message=message, accepted="a time limit, such as 2h")


def refuse_used_up(context: Context, scope: Scope, who: Principal, manifest: Mapping[str, Any], learners: int) -> None:
    """Raises Problem budget_used_up for a job that would never start. Whether it starts is decided at its admission."""
    gpus, limit = gpus_of(manifest, learners), manifest.get("max_runtime_seconds")
    if who.budget is None or not gpus or not limit:
        return
    budget = standings(scope.session, [who.budget])[who.budget]
    if budget.limit - budget.used < need(gpus, limit, context.settings.timings.grace).least:
        used = f"{hours(budget.used)} of {hours(budget.limit)} GPU-hours are used"
        raise Problem(BUDGET_USED_UP, f"the budget of token {budget.name!r} is used up: {used}")
