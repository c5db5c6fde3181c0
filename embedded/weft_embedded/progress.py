"""Distinguishes a slow process from a stuck process, by its work.

A clock alone can't do this: on a loaded machine everything takes long.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from weft_core import processes

_BUSY = 0.02  # of the time: less is a server that waits for something
_MEASURE = 2.0  # seconds between two measurements


@dataclass(frozen=True)
class _Work:
    """The work that a process and its descendants have done so far."""

    wanted: float = 0.0  # seconds that they had a CPU or waited for their turn
    disk: int = 0  # bytes from and to the disk
    said: int = 0  # bytes in the log


class Patience:
    """Watches a process for which somebody waits.

    It makes progress while it, or a descendant of it, uses the CPU or waits for it for a fiftieth of the time at least,
    or reads or writes the disk, or writes log lines. A process that is stopped, or that waits for something that never
    comes, does none of these.

    Args:
        pid: the process.
        log: the file with its output, if its growth counts.
        limit: seconds without any progress after which it counts as stuck.
    """

    def __init__(self, pid: int, log: Path | None, limit: float) -> None:
        self.limit = limit
        self._pid = pid
        self._log = log
        self._began = self._measured = self._since = time.monotonic()
        # Not before it has waited for a while: most of those who wait are done by then.
        self._last: _Work | None = None

    @property
    def waited(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def idle(self) -> float:
        """Seconds for which the process has done nothing. Measures again unless the last measurement is recent."""
        now = time.monotonic()
        if now - self._measured >= min(_MEASURE, self.limit / 4):
            self._measured = now
            work, last = self._work(), self._last
            if last is None:
                self._last, self._since = work, now
                return 0.0
            wanted = abs(work.wanted - last.wanted)  # less than before: a thread or a child has come to its end
            if (work.disk, work.said) != (last.disk, last.said) or wanted > _BUSY * (now - self._since):
                self._last, self._since = work, now
        return now - self._since

    @property
    def is_over(self) -> bool:
        """Whether the process is stuck."""
        return self.idle > self.limit

    def _work(self) -> _Work:
        wanted, disk = 0.0, 0
        for pid in (self._pid, *(child.pid for child in processes.descendants(self._pid))):
            with contextlib.suppress(OSError):  # it is gone, or another user's
                disk += _disk(pid)
            with contextlib.suppress(OSError):
                wanted += processes.cpu_seconds(pid) + _queued(pid)
        try:
            said = self._log.stat().st_size if self._log is not None else 0
        except OSError:
            said = 0
        return _Work(wanted, disk, said)


def _disk(pid: int) -> int:
    """Bytes that it has read from the disk and written to it."""
    lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(lines["read_bytes"]) + int(lines["write_bytes"])


def _queued(pid: int) -> float:
    """Seconds for which its threads were ready to run and waited for a CPU, where the kernel counts them."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int((task / "schedstat").read_text().split()[1])
    return total / 1e9
