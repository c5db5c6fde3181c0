"""The audit trail, for administrators and owners of projects."""

from __future__ import annotations

from collections.abc import Iterator

from weft.models import AuditRecord
from weft.transport.http import Transport

_PAGE = 200


class Audit:
    """The records of actions. Administrators read all records, owners those of their project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        project: str | None = None,
        user: str | None = None,
        action: str | None = None,
        object_id: str | None = None,
        outcome: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
    ) -> Iterator[AuditRecord]:
        """The records, newest first, fetched page by page.

        Args:
            project: only records of this project.
            user: only what this user did.
            action: only this action (``jobs.halt``), or this group of actions (``jobs``).
            object_id: only what happened to this object: an id or a name, alone or after its kind (``job:job-…``).
            outcome: only ``allowed``, ``refused`` or ``failed``.
            since: only from then on: a span until now such as ``2h``, or an ISO time.
            until: only before then, likewise.
            limit: the maximum number of records; None: all.

        Raises:
            Forbidden: you are neither an administrator nor an owner.
        """
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page = self._transport.json(
                "GET",
                "/audit",
                params={
                    "project": project,
                    "user": user,
                    "action": action,
                    "object": object_id,
                    "outcome": outcome,
                    "since": since,
                    "until": until,
                    "limit": min(_PAGE, left) if left is not None else _PAGE,
                    "cursor": cursor,
                },
                holds="records",
            )
            for record in page["records"]:
                yield AuditRecord.from_json(record)
            cursor = page.get("next_cursor")
            if left is not None:
                left -= len(page["records"])
            if not cursor:
                return
