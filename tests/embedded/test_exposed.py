"""The words about engines that do not keep jobs apart, from the workers' observations in a real database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from weft_core.store.database import Database
from weft_core.store.models import EngineStatus
from weft_embedded.stack import exposed_engines


def test_each_engine_is_named_when_the_worker_has_looked_at_it(database: Database, database_url: str) -> None:
    url = database_url.replace("postgresql+psycopg://", "postgresql://")
    now = datetime.now(UTC)

    def looked(name: str, at: datetime | None = now, **capacity: Any) -> tuple[set[str], str]:
        with database.transaction() as session:
            session.add(EngineStatus(name=name, type="local", capacity=capacity, seen_at=at))
        return exposed_engines(url, 3600)

    assert looked("apart") == ({"apart"}, "")
    assert looked("before", now - timedelta(days=1), exposed="of an earlier start") == ({"apart"}, "")
    assert looked("unreachable", None) == ({"apart"}, "")
    words = "engine open does not keep jobs apart: its setting isolation is none"
    assert looked("open", exposed="its setting isolation is none") == ({"apart", "open"}, words)
    words += "; jobs of engine shares share a network: no policies"
    assert looked("shares", shared_network="no policies") == ({"apart", "open", "shares"}, words)
    assert exposed_engines("postgresql://127.0.0.1:1/none", 3600) == (set(), "")
