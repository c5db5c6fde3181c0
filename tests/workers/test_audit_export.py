"""The audit trail on its way to a file or to syslog, and its retention."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import func, insert, select, text
from sqlalchemy.orm import Session

from weft_core.settings import AuditSettings
from weft_core.store.models import AuditRecord
from weft_workers.audit_export import AuditExporter
from weft_workers.context import Context
from weft_workers.housekeeping import Housekeeping


def add(session: Session, action: str, **values: Any) -> None:
    row = {"actor": "token", "user_name": "ada", "address": "203.0.113.7", "status": 202, "request_id": "r", **values}
    session.execute(insert(AuditRecord.__table__).values(action=action, **row))  # type: ignore[arg-type]


def record(context: Context, *actions: str) -> None:
    for action in actions:
        with context.database.transaction() as session:
            add(session, action, object_kind="job", object_id="job-ü\n1")


def exporter(context: Context, target: str) -> AuditExporter:
    settings = context.settings.model_copy(update={"audit": AuditSettings(export=target)})
    return AuditExporter(replace(context, settings=settings))


def actions(lines: str) -> list[str]:
    return [json.loads(line)["action"] for line in lines.splitlines()]


@pytest.fixture
def target(context: Context, tmp_path: Path) -> Path:
    """A file that has all earlier records."""
    file = tmp_path / "audit.jsonl"
    exporter(context, f"file:{file}").export_due()
    file.write_text("")
    return file


def test_each_record_is_a_line_of_the_file_once(context: Context, target: Path) -> None:
    record(context, "jobs.submit", "jobs.halt")
    assert exporter(context, f"file:{target}").export_due() == 2
    assert exporter(context, f"file:{target}").export_due() == 0
    record(context, "jobs.delete")
    exporter(context, f"file:{target}").export_due()
    lines = target.read_text()
    assert actions(lines) == ["jobs.submit", "jobs.halt", "jobs.delete"]
    first = json.loads(lines.splitlines()[0])
    assert (first["user"], first["address"], first["object_id"]) == ("ada", "203.0.113.7", "job-ü\n1")
    assert (first["outcome"], first["status"], first["count"]) == ("allowed", 202, 1)
    assert first["at"].endswith("+00:00")


def test_many_workers_send_each_record_once(context: Context, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_workers.audit_export._BATCH", 7)
    record(context, *(f"test.{number}" for number in range(50)))
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(exporter(context, f"file:{target}").export_due)
    exporter(context, f"file:{target}").export_due()
    assert actions(target.read_text()) == [f"test.{number}" for number in range(50)]


def test_a_target_that_is_away_gets_all_later(context: Context, target: Path) -> None:
    away = target.with_name("not-there-yet") / "audit.jsonl"
    record(context, "jobs.submit")
    assert exporter(context, f"file:{away}").export_due() == 0
    away.parent.mkdir()
    assert exporter(context, f"file:{away}").export_due() > 0
    assert actions(away.read_text())[-1] == "jobs.submit"


def test_a_record_that_is_committed_late_is_not_skipped(context: Context, target: Path) -> None:
    """Its id is smaller than that of a record that is there already."""
    send = exporter(context, f"file:{target}").export_due
    with ThreadPoolExecutor(1) as pool:
        with context.database.transaction() as late:
            add(late, "test.first")
            record(context, "test.second")
            sending = pool.submit(send)
            wait_until(lambda: waits_for_a_lock(context))
        assert sending.result(300) == 2
    assert actions(target.read_text()) == ["test.first", "test.second"]


def waits_for_a_lock(context: Context) -> bool:
    with context.database.transaction() as session:
        waiting = text("select count(*) from pg_locks where locktype = 'advisory' and not granted")
        return bool(session.scalar(waiting))


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")


@contextmanager
def receiver(listening: socket.socket) -> Iterator[list[str]]:
    """A syslog daemon: keeps what comes."""
    heard: list[str] = []
    listening.settimeout(30)

    def listen() -> None:
        with suppress(OSError):  # closed at the end
            while message := listening.recv(65_536):
                heard.append(message.decode())

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    with listening:
        yield heard


def test_syslog_over_udp(context: Context, target: Path) -> None:
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("127.0.0.1", 0))
    with receiver(listening) as heard:
        record(context, "jobs.submit", "jobs.halt")
        sent = exporter(context, f"syslog:127.0.0.1:{listening.getsockname()[1]}").export_due()
        wait_until(lambda: len(heard) == sent)
        messages = [re.fullmatch(r"<110>1 \S+T\S+\+00:00 \S+ weft - audit - (\{.*\})", message) for message in heard]
    assert [json.loads(found[1])["action"] for found in messages if found][-2:] == ["jobs.submit", "jobs.halt"]
    assert None not in messages


def test_syslog_at_a_socket_of_this_machine(context: Context, target: Path) -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = target.with_name("log")
    listening.bind(str(path))
    with receiver(listening) as heard:
        record(context, "jobs.submit")
        sent = exporter(context, f"syslog:{path}").export_due()
        wait_until(lambda: len(heard) == sent)
    assert heard[-1].startswith("<110>weft: {")
    assert json.loads(heard[-1].partition(": ")[2])["action"] == "jobs.submit"


@pytest.mark.parametrize(
    "wrong", ["/var/log/audit", "file:relative", "syslog:host", "syslog:host:0", "http://x", "file:"]
)
def test_a_target_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match="expected file:/path, syslog:HOST:PORT or syslog:/dev/log"):
        AuditSettings(export=wrong)


def test_old_records_are_deleted_after_the_retention(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_workers.housekeeping._AUDIT_BATCH", 2)
    with context.database.transaction() as session:
        for days in (399, 401, 402, 403):
            add(session, "test.old", request_id=str(days), created_at=func.now() - timedelta(days=days))
    assert Housekeeping(context).drop_old_audit_records() == 3
    assert Housekeeping(context).drop_old_audit_records() == 0
    with context.database.transaction() as session:
        left = session.scalars(select(AuditRecord.request_id).where(AuditRecord.action == "test.old")).all()
    assert left == ["399"]
