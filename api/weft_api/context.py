"""What the handlers share, made once by :func:`weft_api.app.create_app` and handed to them by FastAPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import Depends
from starlette.requests import HTTPConnection

from weft_api.bell import Bell
from weft_api.guesses import Guesses
from weft_api.learner.calls import Taken
from weft_api.learner.lanes import Lanes
from weft_api.logs.archive import LogArchive
from weft_api.stores import Checker
from weft_api.telemetry import Metrics
from weft_api.verified import Verified
from weft_core.catalogue import Catalogue
from weft_core.objects import Objects
from weft_core.secrets import SecretBox
from weft_core.settings import Settings
from weft_core.store.database import Database
from weft_core.tracing import Tracing
from weft_core.wake import Wake


@dataclass(frozen=True)
class Context:
    settings: Settings
    database: Database
    objects: Objects
    logs: LogArchive
    box: SecretBox
    wake: Wake
    bell: Bell
    catalogue: Catalogue
    metrics: Metrics
    tracing: Tracing
    checker: Checker
    drafts: Checker
    """For manifests that are only validated, which pages do as they are typed: a slow store takes no thread from jobs
    that are submitted."""
    guesses: Guesses
    verified: Verified
    lanes: Lanes[Taken]
    """Of logs."""
    metric_lanes: Lanes[Taken]
    followers: CapacityLimiter
    """Of threads that look for followers, so that however many follow, requests are answered."""

    def close(self) -> None:
        self.checker.close()
        self.drafts.close()
        self.tracing.close()
        self.guesses.close()
        self.wake.close()
        self.database.close()


async def _context(connection: HTTPConnection) -> Context:
    context: Context = connection.app.state.context
    return context


Ctx = Annotated[Context, Depends(_context)]
