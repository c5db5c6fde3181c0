"""The metric shipper: takes records from every source and delivers each to the API exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from weft_trainer.control import Control
from weft_trainer.errors import ApiError
from weft_trainer.metrics.limiter import Limiter
from weft_trainer.metrics.records import Record, encode, masked
from weft_trainer.service.mask import Mask
from weft_trainer.service.reporter import Reporter
from weft_trainer.service.shipper import Shipper
from weft_trainer.service.spool import Spool

_MOST_NAMES = 20_000
_LINGER = 1.0
"""Seconds between two batches, at least. A metric that was not logged for a second shows at once."""


class MetricShipper:
    """
    Args:
        say: writes a line into the job's log.
        stepped: called when the program, and not the agent, has reported values.
    """

    def __init__(
        self,
        reporter: Reporter,
        control: Control,
        spool: Spool,
        say: Callable[[str], None],
        mask: Mask,
        stepped: Callable[[], None] = lambda: None,
    ) -> None:
        self._reporter = reporter
        self._stepped = stepped
        self._spool = spool
        self._say = say
        self._mask = mask
        self._limiter = Limiter(say)
        self._shipper = Shipper(
            spool, reporter.metrics, control, lambda: max(_LINGER, reporter.pause), self._refused, "metrics-sender"
        )
        self._lock = threading.Lock()
        self._names: set[tuple[str, str]] = set()
        """Group and name of each metric that was written by a source that does not yield."""
        self._open = True
        """Whether the API still takes metrics."""

    def start(self) -> None:
        self._shipper.start()

    @property
    def room(self) -> int:
        """Points for which there is room now."""
        with self._lock:
            return self._limiter.room if self._open else 0

    def write(self, records: Sequence[Record], left_out: int = 0, yields: bool = False) -> None:
        """From any thread.

        Args:
            left_out: points that their source did not even read because there was no room.
            yields: whether the values of metrics that another source writes, too, are left out.
        """
        if not records and not left_out:
            return
        if any(record.kind == "user" for record in records):
            self._stepped()
        records = [masked(record, self._mask) for record in records]
        with self._lock:
            if not self._open:
                return
            records = self._others_left_out(records) if yields else self._noted(records)
            if left_out:
                self._limiter.left_out(left_out)
            admitted = self._limiter.admit(records)
            self._append(admitted)
        if admitted:
            self._shipper.ring()

    def flush(self, deadline: float) -> bool:
        """Send the rest. Returns whether it arrived within ``deadline`` seconds. No write may follow."""
        with self._lock:
            if self._open:
                self._append(self._limiter.finish())
        self._reporter.hurry()
        return self._shipper.flush(deadline)

    def _noted(self, records: Sequence[Record]) -> Sequence[Record]:
        for record in records:
            if record.kind == "user" and len(self._names) < _MOST_NAMES:
                self._names.update((record.group, name) for name in record.values)
        return records

    def _others_left_out(self, records: Sequence[Record]) -> Sequence[Record]:
        left = []
        for record in records:
            values = {name: value for name, value in record.values.items() if (record.group, name) not in self._names}
            if values:
                left.append(record._replace(values=values))
        return left

    def _append(self, records: Sequence[Record]) -> None:
        try:
            self._spool.append(line for record in records for line in encode(record))
        except OSError as error:  # the disk is full, which the program will notice itself
            self._open = False
            self._say(f"weft: metrics are no longer kept: {error.strerror or error}")

    def _refused(self, error: ApiError) -> None:
        with self._lock:
            self._open = False
        if error.status != 404:  # 404: a service that takes no metrics
            self._say(f"weft: metrics are no longer sent: {error}")
