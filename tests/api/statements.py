"""Counts the statements that a request sends to Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import event
from tests.api.conftest import Api


@dataclass
class Counted:
    statements: list[str] = field(default_factory=list)
    """Each is a round trip."""
    transactions: int = 0
    """Each takes two round trips more, for its begin and its end."""

    @property
    def round_trips(self) -> int:
        return len(self.statements) + 2 * self.transactions

    def __str__(self) -> str:
        shown = (" ".join(text.split())[:120] for text in self.statements)
        return f"{self.transactions} transactions; " + "; ".join(shown)


@contextmanager
def counted(api: Api) -> Iterator[Counted]:
    """The statements that the API's process sends to Postgres inside the block, so the block waits for its requests."""
    found = Counted()

    def statement(connection: Any, cursor: Any, text: str, *_: Any) -> None:
        found.statements.append(text)

    def ended(connection: Any) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            found.transactions += 1

    engine = api.context.database.engine
    listeners: list[tuple[str, Callable[..., Any]]] = [
        ("before_cursor_execute", statement),
        ("commit", ended),
        ("rollback", ended),
    ]
    for name, listener in listeners:
        event.listen(engine, name, listener)
    try:
        yield found
    finally:
        for name, listener in listeners:
            event.remove(engine, name, listener)
