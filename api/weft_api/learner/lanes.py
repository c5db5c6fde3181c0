"""Batches of lines, or of metrics, that wait are taken in together, so that a gang of a thousand costs a transaction
now and then instead of one a batch, and leaves room for others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

T = TypeVar("T")

_OF_ONE = 2
"""A job's are numbered one group after the other: one is written while the next is made ready."""
_GROUP = 64
"""Batches at once, and their bytes: whoever comes next waits for all of them."""
_GROUP_BYTES = 4 << 20


@dataclass
class _Lane(Generic[T]):
    waiting: deque[tuple[bytes, asyncio.Future[T]]] = field(default_factory=deque)
    running: int = 0

    def group(self) -> list[tuple[bytes, asyncio.Future[T]]]:
        """What is taken in next."""
        taken: list[tuple[bytes, asyncio.Future[T]]] = []
        size = 0
        while self.waiting and len(taken) < _GROUP and (not taken or size + len(self.waiting[0][0]) <= _GROUP_BYTES):
            taken.append(self.waiting.popleft())
            size += len(taken[-1][0])
        return taken


class Lanes(Generic[T]):
    """Whoever waits for his turn holds no thread and no connection. Used from the event loop only.

    Args:
        threads: and connections to Postgres, of all attempts together.
    """

    def __init__(self, threads: int = 8) -> None:
        self._limiter = CapacityLimiter(threads)
        self._lanes: dict[str, _Lane[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Batches whose turn has not come."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    async def run(self, attempt: str, batch: bytes, work: Callable[[Sequence[bytes]], Sequence[T | Exception]]) -> T:
        """What ``work`` has made of ``batch``, when it was this attempt's turn (named by its token, say).

        Args:
            work: done in a thread, with this batch and those of the same attempt that wait beside it; gives each one's
                outcome. What it raises is everyone's.
        """
        lane = self._lanes.setdefault(attempt, _Lane())
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        lane.waiting.append((batch, done))
        if lane.running < _OF_ONE:
            lane.running += 1
            task = asyncio.create_task(self._drain(attempt, lane, work))
            self._tasks.add(task)  # or it might be collected while it runs
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _drain(
        self, attempt: str, lane: _Lane[T], work: Callable[[Sequence[bytes]], Sequence[T | Exception]]
    ) -> None:
        group: list[tuple[bytes, asyncio.Future[T]]] = []
        try:
            while group := lane.group():
                outcomes: Sequence[T | Exception]
                try:
                    outcomes = await anyio.to_thread.run_sync(
                        work, [batch for batch, _ in group], limiter=self._limiter
                    )
                except Exception as error:
                    outcomes = [error] * len(group)
                for (_, done), outcome in zip(group, outcomes, strict=True):
                    if done.done():
                        continue  # its client has gone, and will send it again
                    if isinstance(outcome, Exception):
                        done.set_exception(outcome)
                    else:
                        done.set_result(outcome)
        finally:
            for _, done in group:  # none, unless the server is being stopped
                done.cancel()
            lane.running -= 1
            if not lane.running and not lane.waiting:
                self._lanes.pop(attempt, None)
