"""System metrics of the learner, every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from weft_trainer.metrics.records import Record
from weft_trainer.metrics.shipper import MetricShipper


class SystemSampler:
    """
    Args:
        every: seconds between two samples.
        ignore: processes below the agent that are its own.
        folders: the learner's, whose size is disk_used_bytes.
        memory: bytes that the learner may use; None: nobody has set a limit.
    """

    def __init__(
        self,
        shipper: MetricShipper,
        every: float,
        ignore: Collection[int],
        folders: Sequence[Path],
        memory: int | None,
    ) -> None:
        self._shipper = shipper
        self._every = every
        self._ignore = ignore
        self._folders = folders
        self._memory = memory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="system", daemon=True)

    def start(self) -> None:
        if self._every > 0:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._every)

    def _run(self) -> None:
        # Not before the first sample is due: psutil's import must not delay the learner's start.
        if self._stop.wait(min(1.0, self._every)):
            return
        from weft_trainer.machine.usage import Usage

        usage = Usage(self._ignore, self._folders, self._memory)
        while not self._stop.wait(self._every):
            values = usage.read()
            self._shipper.write([Record(int(time.time() * 1000), values, "system", {}, "system")])
