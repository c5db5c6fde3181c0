"""Long computations in a thread beside those that answer requests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_WORK, _REST = 0.002, 0.002
"""Seconds."""


def unhurried(items: Iterable[T]) -> Iterator[T]:
    """The items, with a rest after each 2 ms of work.

    A thread that computes on and on gives up the interpreter only every 5 ms, each time that another thread asks for
    it. The event loop asks several times for each request, and would answer a fifth of them meanwhile.
    """
    begun = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - begun > _WORK:
            time.sleep(_REST)
            begun = time.perf_counter()
