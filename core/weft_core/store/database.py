"""Connections and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session, sessionmaker

from weft_core.store.row_security import Walls, confining


class Database:
    """A pool of connections to Postgres, and transactions on them.

    Args:
        url: ``postgresql+psycopg://…``; a plain ``postgresql://`` is taken as that.
        pool_size: connections kept; as many again may be opened for a while.
        confines: a Scope limits all of its transaction to its project (:mod:`weft_core.store.row_security`). For the
            processes that answer users.
    """

    def __init__(self, url: str, pool_size: int = 5, *, confines: bool = False) -> None:
        if url.startswith("postgresql://"):
            url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        # pre_ping: a Postgres that was restarted costs one retry, not an error at a user.
        self.engine: Engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 5},  # seconds; a host that swallows packets would be waited for minutes
        )
        self.walls = Walls()
        info = confining(self.walls) if confines else {}
        self._sessions = sessionmaker(self.engine, expire_on_commit=False, info=info)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A session in one transaction: committed at the end, rolled back on an exception."""
        with self._sessions.begin() as session:
            yield session

    def close(self) -> None:
        self.engine.dispose()
