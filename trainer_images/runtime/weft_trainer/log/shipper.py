"""The log of a learner: takes lines from every source, in one order, and brings each to the API exactly once.

A flood must do no harm: beyond the log's limits, lines are left out, and a line in their place says so. Lines that are
left out are counted and written to the learner's own file (up to a limit, too), but not parsed.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from weft_trainer import words
from weft_trainer.control import Control
from weft_trainer.errors import ApiError, Fenced, TrainerError, warn
from weft_trainer.log.limits import Gate
from weft_trainer.log.lines import Line
from weft_trainer.service.client import ApiClient
from weft_trainer.service.mask import Mask
from weft_trainer.service.reporter import Reporter
from weft_trainer.service.shipper import Shipper
from weft_trainer.service.spool import Batch, Spool
from weft_trainer.spec import LogSpec

_LINGER = 0.05
"""Seconds between two batches, at least: a program that prints line by line costs 20 calls a second at most."""
_LAST_LINES = 20
_LAST_LINE_LENGTH = 500
_LAST_BYTES = 8192
_TOLD_LENGTH = 2000
_PAUSE = 1.0
"""Seconds until a full spool is checked again."""
_CLOSING_SECONDS = 10.0


class LogShipper:
    """Thread-safe."""

    def __init__(
        self,
        api: ApiClient,
        reporter: Reporter,
        control: Control,
        spool: Spool,
        merged: Path,
        spec: LogSpec,
        mask: Mask,
    ) -> None:
        self._api = api
        self._spool = spool
        self._spec = spec
        self._mask = mask
        self._shipper = Shipper(
            spool, reporter.logs, control, lambda: max(_LINGER, reporter.pause), self._refused, "logs"
        )
        self._merged = _MergedLog(merged, spec.file_bytes)
        self._gate = Gate(spec)
        self._lock = threading.Lock()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._shut = ""
        """Why lines are left out just now."""
        self._full = False
        """The API takes nothing more."""
        self._left_out: deque[Line] = deque(maxlen=_LAST_LINES)
        """The last lines that were."""
        self._left_lines = self._left_bytes = 0

    def start(self) -> None:
        self._shipper.start()

    def write(self, lines: Sequence[Line]) -> None:
        if not lines:
            return
        if self._mask.finds("\n".join(line.text for line in lines)):
            lines = [line._replace(text=self._mask.text(line.text)) for line in lines]
        with self._lock:
            size = self._merged.write("".join(line.text + "\n" for line in lines).encode())
            self._last.extend(line.text[:_LAST_LINE_LENGTH] for line in lines)
            if not self._shut and not self._append(lines):
                self._close_for(_PAUSE, "the API has not taken the lines that wait for it")
            elif not self._shut:
                seconds = self._gate.pay(len(lines), size)
                if seconds:
                    self._close_for(seconds, self._gate.words)
                return
            self._count_out(lines, len(lines), size)

    def say(self, text: str) -> None:
        """Write a line of the agent's own."""
        self.write([Line(int(time.time() * 1000), text)])

    @property
    def flooded(self) -> bool:
        """Whether lines are left out just now; then whole lines need not be parsed, but may be given to
        ``leave_out``."""
        return bool(self._shut)

    def leave_out(self, raw: bytes) -> None:
        """Whole lines, as the program wrote them, that need not go to the API."""
        if not raw:
            return
        raw = self._mask.raw(raw)
        last = raw[-_LAST_BYTES:].split(b"\n")[:-1]
        if len(raw) > _LAST_BYTES and len(last) > 1:
            del last[0]  # its beginning is missing
        now = int(time.time() * 1000)
        lines = [Line(now, line.decode("utf-8", "replace").replace("\0", "\ufffd")) for line in last[-_LAST_LINES:]]
        with self._lock:
            self._merged.write(raw)
            self._last.extend(line.text[:_LAST_LINE_LENGTH] for line in lines)
            self._count_out(lines, raw.count(b"\n"), len(raw))
            if not self._shut:  # it has opened since the caller's check, so the lines left out are reported at once
                self._close_for(0.0, self._gate.words)

    def _count_out(self, last: Sequence[Line], lines: int, size: int) -> None:
        self._left_out.extend(
            line if len(line.text) <= _TOLD_LENGTH else Line(line.time, line.text[:_TOLD_LENGTH] + " [weft: cut]")
            for line in last
        )
        self._left_lines += lines
        self._left_bytes += size

    @property
    def last_lines(self) -> list[str]:
        with self._lock:
            return list(self._last)

    def close_file(self) -> None:
        """The learner's own file is whole: nothing that comes now is written to it."""
        with self._lock:
            self._merged.close()

    def flush(self, deadline: float) -> bool:
        """Send all there is; False when it did not arrive within ``deadline`` seconds. No write may follow."""
        self._open(last=True)
        arrived = self._shipper.flush(deadline)
        if self._full:
            self._say_how_much()
        return arrived

    def _append(self, lines: Sequence[Line], always: bool = False) -> bool:
        """False when the spool has no room."""
        if self._spool.waiting >= self._spec.spool_bytes and not always:
            return False
        with suppress(OSError):  # the disk is full
            self._spool.append(
                json.dumps({"t": line.time, "s": line.text}, ensure_ascii=False).encode() for line in lines
            )
            self._shipper.ring()
            return True
        return False

    def _close_for(self, seconds: float, why: str) -> None:
        self._shut = why
        timer = threading.Timer(seconds, self._open)
        timer.daemon = True
        timer.start()

    def _open(self, last: bool = False) -> None:
        """Log how much was left out, and the last of these lines, as readers of a log need its end.

        Args:
            last: nothing is written after this, so there is room.
        """
        with self._lock:
            if not self._shut or self._full:
                return
            told = list(self._left_out)
            missing = self._left_lines - len(told)
            if missing:
                told.insert(0, Line(int(time.time() * 1000), self._marker(missing, len(told))))
            if told and not self._append(told, last):
                self._close_for(_PAUSE, self._shut)
                return
            self._left_out.clear()
            self._left_lines = self._left_bytes = 0
            self._shut = ""
            self._gate.pay(len(told), sum(len(line.text) for line in told))

    def _marker(self, missing: int, told: int) -> str:
        where = "" if self._merged.full else "; training-log.txt, which is stored with the results, has them"
        lines = f"{words.count(missing, 'line')} ({words.size(self._left_bytes)}) {'was' if missing == 1 else 'were'}"
        return f"[weft] {lines} left out here: {self._shut}{where}. The last {told} follow."

    def _refused(self, error: ApiError) -> None:
        """The API takes no more lines, for example because the job's log is full. The program goes on."""
        warn(f"log lines are no longer sent: {error}")
        with self._lock:
            self._full, self._shut = True, "the job's log is full"
            self._left_lines += self._spool.clear()

    def _say_how_much(self) -> None:
        """A full log still takes a line, in place of the batch that was refused."""
        if not self._left_lines:
            return
        marker = f"[weft] {self._left_lines:,} lines of this learner were left out: {self._shut}"
        line = json.dumps({"t": int(time.time() * 1000), "s": marker}).encode()
        with suppress(TrainerError, Fenced):
            self._api.logs(Batch(self._spool.sequence, [line]), self._spool.instance, deadline=_CLOSING_SECONDS)


class _MergedLog:
    """The learner's log as a file of its own, of ``limit`` bytes at most."""

    def __init__(self, path: Path, limit: int) -> None:
        self._file = path.open("ab", buffering=0)
        self._left = limit - path.stat().st_size
        self._limit = limit
        self.full = False

    def write(self, data: bytes) -> int:
        """Write ``data``, or as much of it as the limit allows. Returns the length of ``data``."""
        size = len(data)
        if not self.full and not self._file.closed:
            if size > self._left:
                data = data[: data.rfind(b"\n", 0, max(self._left, 0)) + 1]
                data += f"[weft] this file has reached its limit of {words.size(self._limit)}\n".encode()
                self.full = True
            self._left -= size
            try:
                self._file.write(data)
            except OSError:  # the disk is full: the program goes on
                self.full = True
        return size

    def close(self) -> None:
        self._file.close()
