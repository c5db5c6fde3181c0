"""Sends the content of a spool to the API: batch after batch, each exactly once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from weft_trainer.control import Control
from weft_trainer.errors import ApiError, Fenced
from weft_trainer.service.spool import Batch, Spool

_GATHER = 0.003
_SMALL = 100
"""Lines. After a batch that is no larger, the next batch waits for more."""

Send = Callable[[Batch, str], None]
"""Sends a batch in the name of an agent's instance, and repeats that until it is answered."""


class Shipper:
    """One batch is on its way at a time; the sequence numbers have no gaps.

    Args:
        linger: seconds between two batches, at least; asked for each batch.
        refused: called when the API takes nothing more; nothing is sent from then on.
    """

    def __init__(
        self,
        spool: Spool,
        send: Send,
        control: Control,
        linger: Callable[[], float],
        refused: Callable[[ApiError], None],
        name: str,
    ) -> None:
        self._spool = spool
        self._send = send
        self._control = control
        self._linger = linger
        self._refused = refused
        self._arrived = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """There is something new in the spool."""
        self._arrived.set()

    def flush(self, deadline: float) -> bool:
        """Send all there is; False when it did not arrive within ``deadline`` seconds. Nothing may follow."""
        self._closing.set()
        self._arrived.set()
        self._thread.join(deadline)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                self._arrived.clear()
                closing = self._closing.is_set()  # checked before the spool, so that all lines written by now get sent
                if self._send_all():
                    self._closing.wait(self._linger())
                elif closing:
                    return
                else:
                    self._arrived.wait()
                    self._closing.wait(_GATHER)
        except Fenced:
            self._control.fence()
        except ApiError as error:
            self._refused(error)

    def _send_all(self) -> bool:
        """Whether anything was sent."""
        batch = self._spool.next_batch()
        if batch is None:
            return False
        begun = time.monotonic()
        while batch is not None:
            self._send(batch, self._spool.instance)
            self._spool.done()
            # Asked after the answer, which may have brought another pause.
            if time.monotonic() < begun + self._linger() and len(batch.lines) < _SMALL and not self._closing.is_set():
                break
            batch = self._spool.next_batch()
        return True


def send_leftover(spool: Spool, send: Send) -> None:
    """Send the unsent lines or records of a dead agent, in its name."""
    while (batch := spool.next_batch()) is not None:
        send(batch, spool.instance)
        spool.done()
