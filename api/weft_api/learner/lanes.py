"""How many batches are taken in at the same time, so that a gang of a thousand that all log leaves room for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

import anyio.to_thread
from anyio import CapacityLimiter

_TOGETHER = 8
"""Threads, and connections to Postgres, of all attempts together."""
_OF_ONE = 2
"""Lines of a job are numbered one batch after the other: one is written while the next is made ready."""


class Lanes:
    """Whoever waits for his turn holds no thread and no connection. Used from the event loop only."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(_TOGETHER)
        self._lanes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, attempt: str, work: Callable[[], None]) -> None:
        """Do ``work`` in a thread when it is this attempt's turn (by its token, say). Raises what it raises."""
        lane = self._lanes.setdefault(attempt, asyncio.Semaphore(_OF_ONE))
        async with lane:
            await anyio.to_thread.run_sync(work, limiter=self._limiter)
