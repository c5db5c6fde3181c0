"""Writing records of the audit trail, and counting the refusals that would fill it."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace

import structlog
from sqlalchemy import insert
from sqlalchemy.exc import SQLAlchemyError

from weft_api.context import Context, Shared
from weft_api.telemetry import METRICS
from weft_core.store.database import Database
from weft_core.store.models import ActorKind, AuditRecord

_WINDOW = 60.0  # seconds
_MOST = 1000
"""Kinds of refusals that are counted apart in a window, so that calls from ever new addresses fill no more rows."""
_MANY = "many"

log = structlog.get_logger("weft.audit")


@dataclass(frozen=True)
class Entry:
    """A record that is to be written."""

    actor: ActorKind
    user_id: str | None
    user_name: str | None
    token_id: str | None
    address: str
    action: str
    object_kind: str | None
    object_id: str | None
    project_id: str | None
    project_name: str | None
    status: int
    request_id: str
    count: int = 1

    @property
    def is_noise(self) -> bool:
        """Whether anyone can cause any number of these: refusals of anonymous callers, and of calls beyond a limit."""
        return (self.actor is ActorKind.ANONYMOUS and self.status >= 400) or self.status == 429


@dataclass
class _Waiting:
    """An entry whose request waits until it is written."""

    entry: Entry
    stored: bool | None = None


class Recorder:
    """Writes records. Any thread may call it. Entries that come while others are being written are written together.

    Refusals that are noise are counted by kind (actor, address, action, object and status). The first of a kind in a
    minute is written at once, and the number of the others when the minute is over.
    """

    def __init__(self, context: Context) -> None:
        self._database: Database = context.database
        self._failures = METRICS.of(context).audit_failures
        self._counts: dict[Entry, tuple[int, str]] = {}
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._timer: threading.Timer | None = None

    def record(self, entry: Entry) -> bool:
        """Write or count a record. Returns whether it is stored. If it is not, it is in the log of the service."""
        if entry.is_noise:
            counted = self._count(entry)
            if counted is None:
                return True
            entry = counted
        waiting = _Waiting(entry)
        with self._lock:
            self._waiting.append(waiting)
        with self._writing:
            if waiting.stored is None:  # nobody has written it meanwhile
                self._write_waiting()
        return bool(waiting.stored)

    def close(self) -> None:
        """Write what has been counted."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()

    def _count(self, entry: Entry) -> Entry | None:
        """The entry to write now; None: it is a repetition."""
        kind = replace(entry, request_id="")
        with self._lock:
            if kind not in self._counts and len(self._counts) >= _MOST:
                kind = Entry(
                    ActorKind.ANONYMOUS, None, None, None, _MANY, _MANY, None, None, None, None, entry.status, ""
                )
            seen = kind in self._counts
            self._counts[kind] = (self._counts[kind][0] + 1 if seen else 0, entry.request_id)
            if self._timer is None:
                self._timer = threading.Timer(_WINDOW, self._flush)
                self._timer.daemon = True
                self._timer.start()
        return None if seen else replace(kind, request_id=entry.request_id)

    def _flush(self) -> None:
        with self._lock:
            counts, self._counts, self._timer = self._counts, {}, None
        entries = [
            replace(kind, count=more, request_id=request_id) for kind, (more, request_id) in counts.items() if more
        ]
        if entries:
            self._write(entries)

    def _write_waiting(self) -> None:
        with self._lock:
            together, self._waiting = self._waiting, []
        stored = self._write([waiting.entry for waiting in together])
        for waiting in together:
            waiting.stored = stored

    def _write(self, entries: list[Entry]) -> bool:
        try:
            with self._database.autocommit() as connection:
                connection.execute(insert(AuditRecord), [asdict(entry) for entry in entries])
        except (SQLAlchemyError, OSError) as error:
            self._failures.inc(len(entries))
            reason = str(getattr(error, "orig", None) or error).partition("\n")[0]
            for entry in entries:
                log.error("an audit record could not be stored", error=reason, **asdict(entry))
            return False
        return True


RECORDER = Shared(Recorder, Recorder.close)
