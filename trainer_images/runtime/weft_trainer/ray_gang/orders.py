"""The time by which a run has to end, as ordered by the engine's notes or by a signal from Ray."""

from __future__ import annotations

import signal
import time

from weft_trainer.ray_gang.board import Board


class StopOrders:
    """The orders to stop. If there are several, the earliest end counts.

    Args:
        grace: seconds after a SIGTERM, which comes from ``ray job stop`` or, once a grace is over, from the engine.
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
        """Read new orders. Returns whether one of them shortens the time that is left."""
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
        """Whether the order came from Ray alone, and not from the engine."""
        return self.given and not self.by_engine

    @property
    def left(self) -> float:
        """Seconds of the grace that are left; 0 without an order."""
        return 0.0 if self._deadline is None else max(0.0, self._deadline - time.monotonic())
