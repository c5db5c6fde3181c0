"""Processes by pid *and* start time, as a pid alone may belong to someone else by now. Linux's /proc."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from weft_embedded.progress import Patience

_PROC = Path("/proc")


@cache
def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on; None when there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()  # the second field, the name, may hold spaces and parentheses


@dataclass(frozen=True)
class ProcessId:
    """A process that can't be mistaken for another: pid, start time (clock ticks since the boot), and which boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The identity of the process that has ``pid`` now; None when there is none (a zombie is none)."""
        fields = _stat(pid)
        if fields is None or fields[0] in "ZX":
            return None
        return cls(pid, int(fields[19]), _boot_id())

    @classmethod
    def of_self(cls) -> ProcessId:
        found = cls.of(os.getpid())
        assert found is not None
        return found

    def alive(self) -> bool:
        return ProcessId.of(self.pid) == self

    def signal(self, number: int) -> None:
        """Send a signal; no error when the process is gone."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait_gone(self, seconds: float) -> bool:
        """Whether it was gone within ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def end(self, stop_signal: int, grace: float) -> None:
        """``stop_signal``, then SIGKILL once it does nothing for ``grace`` seconds; returns when it is gone."""
        self.signal(stop_signal)
        patience = Patience(self.pid, None, grace)
        while not self.wait_gone(0.1):
            if patience.is_over:
                self.signal(signal.SIGKILL)
                self.wait_gone(10)
                return

    def save(self, path: Path) -> None:
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> ProcessId | None:
        """What :meth:`save` wrote; None when there is nothing readable."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def session_members(session: int, mark: str) -> Iterator[ProcessId]:
    """The living processes of a session whose environment holds ``mark`` (a session's number may be used again)."""
    for folder in _PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        fields = _stat(int(folder.name))
        if fields is None or int(fields[3]) != session:
            continue
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found = ProcessId.of(int(folder.name))
                if found is not None:
                    yield found
