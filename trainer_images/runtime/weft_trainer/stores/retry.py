"""Repetition of calls that may work a little later."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from weft_trainer.errors import DataError

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds without any progress after which a store is given up, and the learner with it."""
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0


class Temporary(DataError):
    """A store that is away, overloaded, or broke off: worth another try."""


class Unresolved(Temporary):
    """A host whose name leads to no address.

    Args:
        seconds: how long this may be mere bad luck, for a job that has not begun.
    """

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


def patiently(
    work: Callable[[], T], seconds: float, progress: Callable[[], object] | None = None, *, beginning: bool = False
) -> T:
    """``work()``, again and again while it raises Temporary, until ``seconds`` have gone by since it was called first,
    or since ``progress()`` last changed. Raises: DataError.

    Args:
        beginning: nothing would be lost yet: a name that can't be resolved is mistyped more often than not, and is
            given up sooner.
    """
    begun = time.monotonic()
    end = begun + seconds
    pause = _FIRST_PAUSE
    last = progress() if progress else None
    while True:
        try:
            return work()
        except Temporary as error:
            if progress and (now := progress()) != last:
                last, pause, end = now, _FIRST_PAUSE, time.monotonic() + seconds
            if beginning and isinstance(error, Unresolved):
                seconds = min(seconds, error.seconds)
                end = begun + seconds
            if time.monotonic() + pause > end:
                raise Temporary(f"{error} (tried for {seconds:.0f} s)") from error
        time.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311
        pause = min(pause * 2, _LONGEST_PAUSE)
