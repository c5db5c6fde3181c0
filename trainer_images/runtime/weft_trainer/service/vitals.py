"""Whether the program makes progress: for how long it has been idle, or has shown no step, and whether it has ever
written anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

_BUSY_CPU = 10.0
"""Percent of one core between two heartbeats, below which a program is idle. Threads that poll for messages (Horovod's,
a Ray node's) take a few."""
_BUSY_GPU = 5.0


class Vitals:
    """The part of a heartbeat that is about the program, and the requests for stacks in its answer.

    Args:
        wrote: whether it has written into its folder, RESULT_DIR or CHECKPOINT_DIR.
        dump: writes the stacks of its processes into the log, and reports them for this request.
        look: looks several times at its processes, and reports for this request whether they stand still.
        saved: when it wrote the checkpoint that is stored (seconds since the epoch); None: it has stored none.
    """

    def __init__(
        self,
        wrote: Callable[[], bool],
        dump: Callable[[str], None],
        saved: Callable[[], float | None] = lambda: None,
        look: Callable[[str], None] = lambda request: None,
    ) -> None:
        self._has_written = wrote
        self._dump = dump
        self._saved = saved
        self._look = look
        self._running = False
        self._active_at = 0.0
        self._read_at = 0.0
        self._stepped_at = 0.0
        self._stepped = False
        """Whether it has shown a step since it started."""
        self._pause = 0.0
        """The longest time between two signs of a step: how long it may be silent and alive."""
        self._wrote = False
        self._answered: set[str] = set()
        """The requests for stacks and for looks."""
        self._dumped_at = float("-inf")
        """When the last stacks had been read; infinity while they are read."""
        self._usage_at = 0.0
        """When reading the usage of the last heartbeat began."""
        self._spoilt = False
        """Whether that usage holds some of the work of reading stacks."""

    def begin(self) -> None:
        """The program starts."""
        self._active_at = self._stepped_at = self._read_at = time.monotonic()
        self._stepped = False
        self._running = True

    def end(self) -> None:
        self._running = False

    def touch(self) -> None:
        """The program has given a sign of life."""
        self._active_at = time.monotonic()

    def step(self) -> None:
        """The program has shown that it gets on: by a line, a metric, or bytes on a disk."""
        self.touch()
        now = self._active_at
        if self._stepped:  # what comes before the first step, such as imports, happens once
            self._pause = max(self._pause, now - self._stepped_at)
        self._stepped_at, self._stepped = now, True

    def read(
        self, system: dict[str, Any], demand: float, wrote: bool = False, at: float | None = None
    ) -> dict[str, Any]:
        """The entries of a heartbeat.

        Args:
            system: the usage since the last time that the usage was read.
            demand: percent of one core that the program would have used since then on a machine of its own.
            wrote: whether a process has written to a disk since then.
            at: when reading these began (``time.monotonic``); None: just now. It is the time of the last heartbeat if
                they are those of the last heartbeat.
        """
        if not self._running:
            return {}
        gpu = max((card.get("percent", 0) for card in system.get("gpus", ())), default=0)
        now = time.monotonic()
        at = now if at is None else at
        if at > self._usage_at:
            # Reading the usage takes time, too: what ended meanwhile may be in the next one.
            self._spoilt, self._usage_at = self._dumped_at >= self._usage_at, at
        if self._spoilt:
            # CPU that py-spy uses is not the program's, and to write the flight recorder's answer is no step: a request
            # for stacks must not make a program that hangs look alive, nor one that computes look idle.
            demand, wrote = 0.0, False
            self._active_at = min(now, self._active_at + now - self._read_at)
        self._read_at = now
        if demand >= _BUSY_CPU or gpu >= _BUSY_GPU:
            self.touch()
        if not self._wrote and self._has_written():
            self._wrote = wrote = True
        if wrote:
            self.step()
        saved = self._saved()
        unsaved = {} if saved is None else {"saved_seconds": max(0.0, round(time.time() - saved, 3))}
        now = time.monotonic()
        return {
            "idle_seconds": round(now - self._active_at, 3),
            "still_seconds": round(now - self._stepped_at, 3),
            "pause_seconds": round(self._pause, 3),
            "wrote": self._wrote,
            **unsaved,
        }

    @property
    def dumping(self) -> bool:
        """Whether stacks are being read just now."""
        return self._dumped_at == float("inf")

    def asked(self, dump: str | None, look: str | None = None) -> None:
        """A heartbeat's answer asks for stacks, or for looks. Each value asks once."""
        for request, answer in ((dump, self._dump), (look, self._look)):
            if request and request not in self._answered and self._running and not self.dumping:
                self._answered.add(request)
                self._dumped_at = float("inf")
                threading.Thread(target=self._show, args=(answer, request), name="stacks", daemon=True).start()

    def _show(self, answer: Callable[[str], None], request: str) -> None:
        try:
            answer(request)
        finally:
            self._dumped_at = time.monotonic()
