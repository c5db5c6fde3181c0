"""A call of MLflow's API: its caller, its arguments, and the transaction that it runs in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlalchemy.orm import Session

from weft_api.context import Context
from weft_api.mlflow.callers import Caller, OfLearner
from weft_api.mlflow.values import Arguments
from weft_core.store.scope import Scope


@dataclass(frozen=True)
class Call:
    context: Context
    session: Session
    caller: Caller
    given: Arguments

    @cached_property
    def scope(self) -> Scope:
        return self.caller.scope(self.session)

    @property
    def learner(self) -> OfLearner | None:
        return self.caller.learner
