"""The log shipper: takes lines from every source, in one order, and brings each to the API exactly once."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from weft_trainer.api import ApiClient
from weft_trainer.control import Control
from weft_trainer.errors import ApiError, Fenced
from weft_trainer.lines import Line
from weft_trainer.spool import Spool

_LINGER = 0.05
"""Seconds between two batches, at least: a program that prints line by line costs 20 calls a second at most."""
_GATHER = 0.003
_LAST_LINES = 20
_LAST_LINE_LENGTH = 500


class LogShipper:
    """One batch is on its way at a time; the sequence numbers have no gaps."""

    def __init__(self, api: ApiClient, control: Control, spool: Spool, merged: Path) -> None:
        self._api = api
        self._control = control
        self._spool = spool
        self._merged = merged.open("ab")
        self._lock = threading.Lock()
        self._arrived = threading.Event()
        self._closing = threading.Event()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, lines: Sequence[Line]) -> None:
        """From any thread."""
        if not lines:
            return
        with self._lock:
            self._spool.append(lines)
            self._merged.write("".join(line.text + "\n" for line in lines).encode())
            self._merged.flush()
            self._last.extend(line.text[:_LAST_LINE_LENGTH] for line in lines)
        self._arrived.set()

    @property
    def last_lines(self) -> list[str]:
        with self._lock:
            return list(self._last)

    def flush(self, deadline: float) -> bool:
        """Send all there is; False when it did not arrive within ``deadline`` seconds. No write may follow."""
        self._closing.set()
        self._arrived.set()
        self._thread.join(deadline)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                self._arrived.clear()
                closing = self._closing.is_set()  # looked at before the spool: what is written by now gets sent
                if self._send_all():
                    self._closing.wait(_LINGER)
                elif closing:
                    return
                else:
                    self._arrived.wait()
                    self._closing.wait(_GATHER)
        except Fenced:
            self._control.fence()
        except ApiError as error:
            # Such as the limit on a job's log. The program goes on; its whole log is stored with the results.
            print(f"weft_trainer: log lines are no longer sent: {error}", file=sys.stderr, flush=True)

    def _send_all(self) -> bool:
        """Whether anything was sent."""
        batch = self._spool.next_batch()
        if batch is None:
            return False
        started = time.monotonic()
        while batch is not None:
            self._api.logs(batch.sequence, batch.lines, self._spool.instance)
            self._spool.done()
            if time.monotonic() - started < _LINGER and len(batch.lines) < 100 and not self._closing.is_set():
                break
            batch = self._spool.next_batch()
        return True


def send_leftover(api: ApiClient, spool: Spool) -> None:
    """Bring what an agent that died had not sent yet to the API, in its name."""
    while (batch := spool.next_batch()) is not None:
        api.logs(batch.sequence, batch.lines, spool.instance)
        spool.done()
