"""The processes of a home, by pid *and* start time, as a pid alone may belong to someone else by now."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from weft_core import processes
from weft_embedded.progress import Patience


@dataclass(frozen=True)
class ProcessId:
    """A process that can't be mistaken for another: pid, start time (clock ticks since the boot), and which boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The identity of the process that has ``pid`` now; None when there is none (a zombie is none)."""
        found = processes.identity(pid)
        return None if found is None or processes.is_zombie(pid) else cls(*found)

    @classmethod
    def of_self(cls) -> ProcessId:
        found = cls.of(os.getpid())
        assert found is not None
        return found

    def alive(self) -> bool:
        return ProcessId.of(self.pid) == self

    def signal(self, number: int) -> None:
        """Send a signal; no error when the process is gone."""
        processes.send(processes.Identity(self.pid, self.started, self.boot), signal.Signals(number))

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
        """The process that :meth:`save` wrote; None: there is no readable file."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def session_members(session: int, mark: str) -> Iterator[ProcessId]:
    """The living processes of a session whose environment holds ``mark`` (a session's number may be used again)."""
    return (ProcessId(*found) for found in processes.of_session(session, mark))
