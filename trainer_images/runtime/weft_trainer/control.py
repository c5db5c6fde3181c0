"""Orders that reach the learner from outside while it works: a stop request, a fence."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from weft_trainer.errors import Fenced, Stopped

T = TypeVar("T")


class Control:
    """Flags and one bell; the main thread waits for the bell and then checks everything.

    Plain attributes and a SimpleQueue, as a signal handler may run in the middle of any other code of the main thread,
    where taking a lock could deadlock.
    """

    def __init__(self) -> None:
        self.stop_requested = False
        self.stop_grace: float | None = None
        """Seconds that came with the stop request; None: it brought none."""
        self.fenced = False
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def request_stop(self, grace: float | None = None) -> None:
        if grace is not None:
            self.stop_grace = grace
        self.stop_requested = True
        self.ring()

    def fence(self) -> None:
        self.fenced = True
        self.ring()

    def ring(self) -> None:
        """Make the main thread check everything."""
        self._bell.put(None)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the bell rings (main thread only)."""
        try:
            self._bell.get(timeout=timeout)
        except queue.Empty:
            return

    def check(self) -> None:
        if self.fenced:
            raise Fenced
        if self.stop_requested:
            raise Stopped

    def run(self, work: Callable[[], T]) -> T:
        """``work()`` in a thread of its own, which is abandoned as soon as a stop or a fence comes.

        Raises:
            Fenced, Stopped: it came.
        """
        return self.begin(work)()

    def begin(self, work: Callable[[], T]) -> Callable[[], T]:
        """Like :meth:`run`, in two parts: the work begins now, and the function that is returned waits for its end."""
        result: list[T] = []
        failure: list[BaseException] = []

        def body() -> None:
            try:
                result.append(work())
            except BaseException as error:
                failure.append(error)
            finally:
                self.ring()

        def end() -> T:
            while not result and not failure:
                self.check()
                self.wait()
            if failure:
                raise failure[0]
            return result[0]

        threading.Thread(target=body, name="work", daemon=True).start()
        return end

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until a fence or a stop (main thread only)."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not (self.fenced or self.stop_requested):
            self.wait(left)
