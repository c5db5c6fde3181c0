"""Whether the program makes progress: for how long it has been idle, and whether it has ever written anything."""

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
        saved: when it wrote the checkpoint that is stored (seconds since the epoch); None: it has stored none.
    """

    def __init__(
        self, wrote: Callable[[], bool], dump: Callable[[str], None], saved: Callable[[], float | None] = lambda: None
    ) -> None:
        self._has_written = wrote
        self._dump = dump
        self._saved = saved
        self._running = False
        self._active_at = 0.0
        self._wrote = False
        self._dumped = ""
        self._dumping = self._dumped_since = False
        """Whether stacks are being read just now, and whether they were since the last heartbeat."""

    def begin(self) -> None:
        """The program starts."""
        self._active_at = time.monotonic()
        self._running = True

    def end(self) -> None:
        self._running = False

    def touch(self) -> None:
        """The program has given a sign of life."""
        self._active_at = time.monotonic()

    def read(self, system: dict[str, Any]) -> dict[str, Any]:
        """The entries of a heartbeat; ``system`` holds the usage since the last heartbeat."""
        if not self._running:
            return {}
        gpu = max((card.get("percent", 0) for card in system.get("gpus", ())), default=0)
        # CPU that py-spy uses is not the program's: a request for stacks must not make an idle program look busy.
        cpu = 0.0 if self._dumped_since else system["cpu_percent"]
        self._dumped_since = self._dumping
        if cpu >= _BUSY_CPU or gpu >= _BUSY_GPU:
            self.touch()
        if not self._wrote and self._has_written():
            self._wrote = True
            self.touch()
        saved = self._saved()
        unsaved = {} if saved is None else {"saved_seconds": max(0.0, round(time.time() - saved, 3))}
        return {"idle_seconds": round(time.monotonic() - self._active_at, 3), "wrote": self._wrote, **unsaved}

    def asked(self, dump: str | None) -> None:
        """A heartbeat's answer asks for stacks. Each value of ``dump`` asks once."""
        if dump and dump != self._dumped and self._running:
            self._dumped = dump
            self._dumping = self._dumped_since = True
            threading.Thread(target=self._show, args=(dump,), name="stacks", daemon=True).start()

    def _show(self, request: str) -> None:
        try:
            self._dump(request)
        finally:
            self._dumping = False
