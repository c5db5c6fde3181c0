"""Folding beside the requests: calls that bring records do not wait for a fold, which may take seconds."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.exc import SQLAlchemyError

from weft_api.context import Context, Shared
from weft_api.metrics.fold import fold, is_due, is_overdue
from weft_core.store.models import MetricCursor

log = logging.getLogger(__name__)


class Folding:
    """One thread folds the metrics of all jobs, one after the other. What it has not folded when the process ends is
    folded with the job's next records."""

    def __init__(self, context: Context) -> None:
        self._database = context.database
        self._limits = context.settings.limits
        self._thread = ThreadPoolExecutor(1, "fold")
        self._asked: set[str] = set()
        self._lock = threading.Lock()

    def fold_if_due(self, cursor: MetricCursor | None) -> None:
        """Have the job's metrics folded if enough of them wait. If far too many wait, as one thread can't keep up with
        those who bring them, the caller folds them itself.

        Args:
            cursor: as the transaction that has locked it has committed it; None is never due.
        """
        if cursor is None or not is_due(cursor):
            return
        if is_overdue(cursor):
            fold(self._database, cursor.job_id, self._limits, wait=True)
            return
        with self._lock:
            if cursor.job_id in self._asked:
                return
            self._asked.add(cursor.job_id)
        self._thread.submit(self._fold, cursor.job_id)

    def close(self) -> None:
        """Wait for the fold that is under way, and begin no other."""
        self._thread.shutdown(cancel_futures=True)

    def _fold(self, job_id: str) -> None:
        try:
            fold(self._database, job_id, self._limits)
        except SQLAlchemyError as error:
            log.warning("the metrics of %s could not be folded, and wait: %s", job_id, error)
        finally:
            with self._lock:
                self._asked.discard(job_id)


FOLDING = Shared(Folding, Folding.close)
