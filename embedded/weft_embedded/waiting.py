"""Helpers for waiting for a part: a question that does not block, messages at sensible times, and a sleep that the end
of a part interrupts."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

_FIRST_WORD, _RARELY = 15.0, 60.0  # seconds


class Question:
    """Asks a part, on a thread of its own, whether it answers. A busy machine's answer may take its time."""

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self.trouble: str | None = "it has not answered yet"
        self.done = False
        self._asked = time.monotonic()
        threading.Thread(target=self._put, args=(ask,), daemon=True).start()

    @property
    def age(self) -> float:
        """Seconds since it was asked."""
        return time.monotonic() - self._asked

    def _put(self, ask: Callable[[], str | None]) -> None:
        try:
            self.trouble = ask()
        except Exception as error:  # any exception means that there is no answer
            self.trouble = f"{type(error).__name__}: {error}"
        self.done = True


class Rest:
    """Sleeps until a signal comes. The end of a child is one, too. A context manager, for the main thread."""

    def __enter__(self) -> Self:
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._handler = signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler it would wake nobody
        self._before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._before)
        signal.signal(signal.SIGCHLD, self._handler)
        os.close(self._woken)
        os.close(self._wakes)

    def sleep(self, seconds: float) -> None:
        if select.select([self._woken], [], [], seconds)[0]:
            os.read(self._woken, 4096)


class Words:
    """The times at which a message says that something still takes a while: after 15 s, later once a minute."""

    def __init__(self) -> None:
        self._next = _FIRST_WORD

    def due(self, waited: float) -> bool:
        """Whether a message is due after so many seconds; true once for each time."""
        if waited < self._next:
            return False
        while self._next <= waited:
            self._next += min(self._next, _RARELY)
        return True
