"""Sends the audit trail on as lines of JSON, to a file or to syslog (setting ``audit.export``).

Each record is sent at least once, in order. A record is sent twice only if the worker dies, or loses the database,
between the sending and the commit; the record's ``id`` reveals that. UDP does not report losses.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence

import structlog
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from weft_core.store.audit import json_line, newest_id
from weft_core.store.models import AuditExport, AuditRecord
from weft_workers.context import Context

log = structlog.get_logger(__name__)

_BATCH = 500
_PRIORITY = 13 * 8 + 6
"""Facility 13 (log audit), severity 6 (informational): RFC 5424."""
_SYSLOG = re.compile(r"syslog:\[?(?P<host>[^/\]]+)\]?:(?P<port>\d+)")

Send = Callable[[Sequence[AuditRecord]], None]


class AuditExporter:
    """Any number of workers may run one: the worker that holds the row of the target sends."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._target = context.settings.audit.export
        self._send = _sender(self._target)

    def export_due(self) -> int:
        """Send the records that have not been sent; returns how many. Trouble is logged, and tried again next time."""
        with self._context.database.transaction() as session:
            newest = newest_id(session)
        sent = 0
        try:
            while batch := self._export_batch(newest):
                sent += batch
        except OSError as error:
            log.error("the audit trail can't be exported", target=self._target, error=error.strerror or str(error))
        return sent

    def _export_batch(self, newest: int) -> int:
        with self._context.database.transaction() as session:
            new = insert(AuditExport).values(target=self._target, last_id=0)
            session.execute(new.on_conflict_do_nothing())
            mine = select(AuditExport).where(AuditExport.target == self._target).with_for_update(skip_locked=True)
            cursor = session.scalars(mine).one_or_none()
            if cursor is None:
                return 0
            waiting = select(AuditRecord).where(AuditRecord.id > cursor.last_id, AuditRecord.id <= newest)
            records = session.scalars(waiting.order_by(AuditRecord.id).limit(_BATCH)).all()
            if records:
                self._send(records)
                cursor.last_id, cursor.updated_at = records[-1].id, func.now()
            return len(records)


def _sender(target: str) -> Send:
    kind, _, path = target.partition(":")
    if kind == "file":
        return lambda records: _to_file(path, records)
    if found := _SYSLOG.fullmatch(target):
        return lambda records: _to_host(found["host"], int(found["port"]), records)
    return lambda records: _to_socket(path, records)


def _to_file(path: str, records: Sequence[AuditRecord]) -> None:
    # Opened each time, so that the file may be renamed and compressed by others.
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(json_line(record) + "\n" for record in records)
        file.flush()
        os.fsync(file.fileno())


def _to_host(host: str, port: int, records: Sequence[AuditRecord]) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    here = socket.gethostname()
    with socket.socket(family, kind, protocol) as out:
        for record in records:
            head = f"<{_PRIORITY}>1 {record.created_at.isoformat()} {here} weft - audit - "
            out.sendto((head + json_line(record)).encode(), address)


def _to_socket(path: str, records: Sequence[AuditRecord]) -> None:
    """In the older form (RFC 3164), as programs write to their own machine's daemon."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect(path)
        for record in records:
            out.send(f"<{_PRIORITY}>weft: {json_line(record)}".encode())
