"""Keyset paging: a cursor encodes the sort key of the last row of a page. Clients must not interpret it."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy import tuple_

from weft_api.http.problems import invalid
from weft_core.store.scope import Row, Scope

Limit = Annotated[int, Query(ge=1, le=500, description="Rows per page.", examples=[50])]
Cursor = Annotated[
    str | None, Query(max_length=4000, description="`next_cursor` of the previous page.", examples=[None])
]


def encode(*key: str) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decode(cursor: str, parts: int) -> list[str]:
    """The key of a cursor made by :func:`encode`. Raises Problem invalid_request for anything else."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        key = None
    # Postgres accepts no NUL characters.
    if (
        not isinstance(key, list)
        or len(key) != parts
        or not all(isinstance(part, str) and "\0" not in part and part.isascii() for part in key)
    ):
        raise invalid("query.cursor", "not a cursor that this API gave", accepted="`next_cursor` of the page before")
    return key


def decode_time_key(cursor: str) -> tuple[datetime, str]:
    """The (time, id) key of a cursor."""
    when, row_id = decode(cursor, 2)
    try:
        at = datetime.fromisoformat(when)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise invalid("query.cursor", "not a cursor that this API gave", accepted="`next_cursor` of the page before")
    return at, row_id


def newest_first(scope: Scope, model: type[Row], limit: int, cursor: str | None) -> tuple[list[Row], str | None]:
    """A page of the project's rows, by their time of creation, and the cursor of the next page."""
    columns: Any = model
    query = scope.select(model).order_by(columns.created_at.desc(), columns.id.desc())
    if cursor is not None:
        query = query.where(tuple_(columns.created_at, columns.id) < decode_time_key(cursor))
    rows: list[Any] = scope.all(query.limit(limit + 1))
    page = rows[:limit]
    return page, encode(page[-1].created_at.isoformat(), page[-1].id) if len(rows) > limit else None
