"""The objects that a step needs, in one object that is passed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.exc import ProgrammingError

from weft_core.engine import Engine, EngineUnreachable
from weft_core.objects import Objects
from weft_core.secrets import SecretBox
from weft_core.settings import Settings
from weft_core.store.database import Database
from weft_core.store.models import Installation
from weft_core.tracing import Tracing, open_tracing
from weft_core.wake import Wake
from weft_workers.observing import ObservedEngine
from weft_workers.telemetry import Metrics
from weft_workers.waiting import Requests


@dataclass(frozen=True)
class Context:
    """One per process: connections don't survive a fork."""

    settings: Settings
    database: Database
    engines: Mapping[str, ObservedEngine]
    objects: Objects
    box: SecretBox
    wake: Wake
    installation: str
    metrics: Metrics
    tracing: Tracing
    owner: str
    """The name of this process in its leases, for people who read the database."""
    requests: Requests = field(default_factory=Requests)
    """The requests of the jobs in the queues, as far as this process has read them."""

    def engine(self, name: str) -> ObservedEngine:
        """Raises EngineUnreachable for a name that is not in the settings (any more): its runs may live on."""
        try:
            return self.engines[name]
        except KeyError:
            known = ", ".join(sorted(self.engines)) or "none"
            raise EngineUnreachable(f"engine {name!r} is not in the settings (there are: {known})") from None

    def close(self) -> None:
        self.wake.close()
        self.tracing.close()
        self.database.close()


def read_installation(database: Database) -> str:
    """This installation's identity.

    Raises:
        LookupError: the database has none, as it was never migrated.
    """
    try:
        with database.transaction() as session:
            found = session.scalars(select(Installation.id)).one_or_none()
    except ProgrammingError:  # not even the tables are there
        found = None
    if found is None:
        raise LookupError("the database is empty: run `python -m weft_core.store.migrate upgrade`")
    return found


def make_context(
    settings: Settings, installation: str, engines: Mapping[str, Engine], *, connections: int = 2
) -> Context:
    """Assemble a context; opens no connection yet.

    Args:
        connections: to Postgres; as many as steps may run at the same time.
    """
    return Context(
        settings=settings,
        database=Database(settings.database_url.get_secret_value(), pool_size=connections),
        engines={name: ObservedEngine(engine, settings.engines[name].type) for name, engine in engines.items()},
        objects=Objects(settings.s3),
        box=SecretBox(settings.secret_keys),
        wake=Wake(settings.redis_url.get_secret_value()),
        installation=installation,
        metrics=Metrics(),
        tracing=open_tracing(settings.telemetry, "weft-worker"),
        owner=f"{socket.gethostname()}:{os.getpid()}",
    )
