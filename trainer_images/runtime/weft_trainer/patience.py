"""Repeats what may work a little later."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from weft_trainer.errors import DataError

T = TypeVar("T")

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0


class Temporary(DataError):
    """A store that is away, overloaded, or broke off: worth another try."""


def patiently(work: Callable[[], T], seconds: float, progress: Callable[[], object] | None = None) -> T:
    """``work()``, again and again while it raises Temporary, until ``seconds`` have gone by since it was called first,
    or since ``progress()`` last changed. Raises: DataError."""
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    last = progress() if progress else None
    while True:
        try:
            return work()
        except Temporary as error:
            if progress and (now := progress()) != last:
                last, pause, end = now, _FIRST_PAUSE, time.monotonic() + seconds
            if time.monotonic() + pause > end:
                raise Temporary(f"{error} (tried for {seconds:.0f} s)") from error
        time.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311
        pause = min(pause * 2, _LONGEST_PAUSE)
