"""The engines, as the workers last observed them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Identity, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created


class EngineStatus(Base):
    """The last observation of an engine. Its row is the lock that serialises admission. Belongs to no project."""

    __tablename__ = "engines"
    name: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]
    capacity: Mapped[dict[str, Any] | None]  # {cpus, memory, gpus, nodes: [...]}
    seen_at: Mapped[datetime | None]  # last answer
    unreachable_since: Mapped[datetime | None]
    error: Mapped[str | None]


class NodeBlame(Base):
    """A node was blamed for what happened to an attempt (``weft_core.store.blames``). Belongs to no project: the names
    stay when the job is gone."""

    __tablename__ = "node_blames"
    __table_args__ = (UniqueConstraint("engine", "node", "job", "attempt", name="uq_node_blames_attempt"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    engine: Mapped[str]
    node: Mapped[str]
    job: Mapped[str]  # its id, and that of its project
    project: Mapped[str]
    attempt: Mapped[int]
    reason: Mapped[str]
    created_at: Mapped[datetime] = created()
    forgiven_at: Mapped[datetime | None]  # it counts no more


class QueueChange(Base):
    """A change that the next pass over an engine's queue has to take into account. The pass deletes what it has read.
    Rows are only ever inserted and deleted, so that transactions that note changes never wait for each other."""

    __tablename__ = "queue_changes"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    engine: Mapped[str]


class Queue(Base):
    """The last pass of admission over an engine's queue. Only the holder of the lock on the engine's row writes it,
    but for ``next_look_at`` and ``next_watch_at``."""

    __tablename__ = "queues"
    engine: Mapped[str] = mapped_column(primary_key=True)
    passed_at: Mapped[datetime | None]  # when the last pass ended
    took: Mapped[float] = mapped_column(server_default="0")  # seconds; the next pass begins no sooner after it
    next_pass_at: Mapped[datetime | None]  # when the queue is planned again without any change; none: nobody waits
    next_look_at: Mapped[datetime | None]  # when a sweeper next checks whether the engine has changed
    next_watch_at: Mapped[datetime | None]  # when a sweeper compares the engine's runs with the attempts again
    noted_at: Mapped[datetime | None]  # when all places and reasons were last written
    seen: Mapped[str] = mapped_column(server_default="")  # a digest of what the engine had, at the last pass
    unready: Mapped[int] = mapped_column(server_default="0")  # jobs whose images or packages are being made
    wanted: Mapped[bool] = mapped_column(server_default=false())  # whether jobs wait for room (and not for a quota)
