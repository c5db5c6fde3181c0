"""When a run has to have ended: by the notes of the engine, or by a signal of Ray's."""

from __future__ import annotations

import signal
import time

from weft_trainer.ray_gang.board import Board


class StopOrders:
    """Of several orders the one that ends first counts.

    Args:
        grace: seconds that count for a SIGTERM: of somebody's ``ray job stop``, or of the engine once a grace is over.
    """

    def __init__(self, board: Board, grace: float) -> None:
        self._board = board
        self._grace = grace
        self._signalled = False
        self._deadline: float | None = None  # on the monotonic clock
        self.by_engine = False
        signal.signal(signal.SIGTERM, self._note_signal)

    def _note_signal(self, *_: object) -> None:
        self._signalled = True

    def check(self) -> bool:
        """Whether there is a new order, which shortens what is left."""
        grace = self._board.stop_grace()
        if grace is not None:
            self.by_engine = True
        elif self._signalled and self._deadline is None:
            grace = self._grace
        if grace is None:
            return False
        end = time.monotonic() + grace
        if self._deadline is not None and end >= self._deadline:
            return False
        self._deadline = end
        return True

    @property
    def given(self) -> bool:
        return self._deadline is not None

    @property
    def by_hand(self) -> bool:
        """Only Ray has said so, not the engine."""
        return self.given and not self.by_engine

    @property
    def left(self) -> float:
        """Seconds of the grace; of an order that was given."""
        return 0.0 if self._deadline is None else max(0.0, self._deadline - time.monotonic())
