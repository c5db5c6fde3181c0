"""The log shipper: takes lines from every source, in one order, and brings each to the API exactly once."""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from weft_trainer.api import ApiClient
from weft_trainer.control import Control
from weft_trainer.errors import ApiError
from weft_trainer.lines import Line
from weft_trainer.shipping import Shipper
from weft_trainer.spool import Spool

_LINGER = 0.05
"""Seconds between two batches, at least: a program that prints line by line costs 20 calls a second at most."""
_LAST_LINES = 20
_LAST_LINE_LENGTH = 500


class LogShipper:
    def __init__(self, api: ApiClient, control: Control, spool: Spool, merged: Path) -> None:
        self._spool = spool
        self._shipper = Shipper(spool, api.logs, control, _LINGER, _refused, "logs")
        self._merged = merged.open("ab")
        self._lock = threading.Lock()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def start(self) -> None:
        self._shipper.start()

    def write(self, lines: Sequence[Line]) -> None:
        """From any thread."""
        if not lines:
            return
        with self._lock:
            self._spool.append(
                json.dumps({"t": line.time, "s": line.text}, ensure_ascii=False).encode() for line in lines
            )
            self._merged.write("".join(line.text + "\n" for line in lines).encode())
            self._merged.flush()
            self._last.extend(line.text[:_LAST_LINE_LENGTH] for line in lines)
        self._shipper.ring()

    @property
    def last_lines(self) -> list[str]:
        with self._lock:
            return list(self._last)

    def flush(self, deadline: float) -> bool:
        """Send all there is; False when it did not arrive within ``deadline`` seconds. No write may follow."""
        return self._shipper.flush(deadline)


def _refused(error: ApiError) -> None:
    # Such as the limit on a job's log. The program goes on; its whole log is stored with the results.
    print(f"weft_trainer: log lines are no longer sent: {error}", file=sys.stderr, flush=True)
