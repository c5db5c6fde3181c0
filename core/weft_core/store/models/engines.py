"""The engines, as the workers last observed them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base


class EngineStatus(Base):
    """The last observation of an engine. Its row is the lock that serialises admission. Belongs to no project."""

    __tablename__ = "engines"
    name: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]
    capacity: Mapped[dict[str, Any] | None]  # {cpus, memory, gpus, nodes: [...]}
    seen_at: Mapped[datetime | None]  # last answer
    unreachable_since: Mapped[datetime | None]
    error: Mapped[str | None]
