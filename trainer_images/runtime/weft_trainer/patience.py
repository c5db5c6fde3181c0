"""Repeats what may work a little later."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from weft_trainer.errors import DataError

T = TypeVar("T")

_LONGEST_PAUSE = 10.0


class Temporary(DataError):
    """A store that is away, overloaded, or broke off: worth another try."""


def patiently(work: Callable[[], T], seconds: float) -> T:
    """``work()``, again and again for ``seconds`` while it raises Temporary. Raises: DataError."""
    end = time.monotonic() + seconds
    pause = 0.2
    while True:
        try:
            return work()
        except Temporary:
            if time.monotonic() + pause > end:
                raise
        time.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311
        pause = min(pause * 2, _LONGEST_PAUSE)
