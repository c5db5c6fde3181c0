"""Connections and transactions."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.orm import Session, sessionmaker

from weft_core import postgres_url
from weft_core.failpoints import AFTER, BEFORE, place, reach
from weft_core.store.row_security import Walls, confining


class Database:
    """A pool of connections to Postgres, and transactions on them.

    Args:
        url: as in the settings (:mod:`weft_core.postgres_url`).
        pool_size: connections kept; as many again may be opened for a while.
        confines: a Scope limits all of its transaction to its project (:mod:`weft_core.store.row_security`). For the
            processes that answer users.
    """

    def __init__(self, url: str, pool_size: int = 5, *, confines: bool = False) -> None:
        # Seconds. A host that swallows packets would be waited for minutes; a crowded server takes several seconds.
        arguments: dict[str, Any] = {"connect_timeout": 15}
        if postgres_url.is_pooled(url):
            arguments["prepare_threshold"] = None  # psycopg would prepare what it executes often
        self.engine: Engine = create_engine(
            postgres_url.for_sqlalchemy(url), pool_size=pool_size, max_overflow=pool_size, connect_args=arguments
        )
        event.listen(self.engine, "checkout", self._check)
        self.walls = Walls()
        info = confining(self.walls) if confines else {}
        self._sessions = sessionmaker(self.engine, expire_on_commit=False, info=info)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A session in one transaction: committed at the end, rolled back on an exception."""
        where = place("commit")
        with self._sessions.begin() as session:
            yield session
            reach(where, BEFORE)
        reach(where, AFTER)

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """A connection on which each statement is a transaction of its own: one round trip instead of three. It sees
        all projects, so it is for what comes before the scope, such as the sign-in."""
        where = place("commit")
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            reach(where, BEFORE)
            yield connection
        reach(where, AFTER)

    def close(self) -> None:
        self.engine.dispose()

    def _check(self, connection: Any, *_: Any) -> None:
        """Have the pool replace its connections if Postgres was restarted, so that this costs no user an error.

        SQLAlchemy's ``pool_pre_ping`` asks Postgres before each transaction, which is a round trip. But Postgres sends
        an idle connection next to nothing besides its end. So only a connection that has something to read is asked.
        """
        try:
            readable = select.poll()
            readable.register(connection.fileno(), select.POLLIN)
            if readable.poll(0):
                self.engine.dialect.do_ping(connection)
        except psycopg.Error as error:
            raise InvalidatePoolError("Postgres has closed the connection") from error
