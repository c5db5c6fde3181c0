"""Queues of work that is cheaper together: batches (of log lines, or of metrics) that learners send, and polls of logs.

All batches of an attempt that wait are processed together. A gang of a thousand learners then costs a transaction now
and then, instead of one for each batch, and leaves room for other requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

B = TypeVar("B")
T = TypeVar("T")

_GROUPS_AT_ONCE = 2
"""Of one attempt. The database orders them: one group is written while the next is prepared."""
_GROUP = 64
"""Batches that are processed together, and their bytes: the next batch waits for all of them."""
_GROUP_BYTES = 4 << 20


@dataclass
class _Queue(Generic[B, T]):
    waiting: deque[tuple[B, asyncio.Future[T]]] = field(default_factory=deque)
    running: int = 0

    def next_group(self) -> list[tuple[B, asyncio.Future[T]]]:
        taken: list[tuple[B, asyncio.Future[T]]] = []
        size = 0
        while self.waiting and len(taken) < _GROUP and (not taken or size + _size(self.waiting[0][0]) <= _GROUP_BYTES):
            taken.append(self.waiting.popleft())
            size += _size(taken[-1][0])
        return taken


def _size(batch: object) -> int:
    return len(batch) if isinstance(batch, bytes) else 0


class BatchQueue(Generic[B, T]):
    """A batch that waits for its turn holds no thread and no connection. Used from the event loop only.

    Args:
        threads: how many threads, and so connections to Postgres, all queues together may use.
        groups_at_once: how many groups of one queue may be processed at the same time.
        apart: seconds from the beginning of a group of several batches to that of the next, unless a whole group waits.
            Batches that come meanwhile are processed together. A batch that comes alone is processed at once.
    """

    def __init__(self, threads: int = 8, groups_at_once: int = _GROUPS_AT_ONCE, apart: float = 0.0) -> None:
        self._limiter = CapacityLimiter(threads)
        self._groups_at_once = groups_at_once
        self._apart = apart
        self._queues: dict[str, _Queue[B, T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Batches whose turn has not come."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    async def run(self, name: str, batch: B, work: Callable[[Sequence[B]], Sequence[T | Exception]]) -> T:
        """The result of ``work`` for ``batch``, when it is its turn.

        Args:
            name: the queue's, such as the attempt's token.
            work: runs in a thread, with this batch and those of the same queue that wait; returns the outcome of
                each batch. An exception that it raises is the outcome of all of them.
        """
        queue = self._queues.setdefault(name, _Queue())
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        queue.waiting.append((batch, done))
        if queue.running < self._groups_at_once:
            queue.running += 1
            task = asyncio.create_task(self._drain(name, queue, work))
            self._tasks.add(task)  # or it might be collected while it runs
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _drain(
        self, name: str, queue: _Queue[B, T], work: Callable[[Sequence[B]], Sequence[T | Exception]]
    ) -> None:
        group: list[tuple[B, asyncio.Future[T]]] = []
        try:
            while group := queue.next_group():
                begun = time.monotonic()
                outcomes: Sequence[T | Exception]
                try:
                    outcomes = await anyio.to_thread.run_sync(
                        work, [batch for batch, _ in group], limiter=self._limiter
                    )
                except Exception as error:
                    outcomes = [error] * len(group)
                for (_, done), outcome in zip(group, outcomes, strict=True):
                    if done.done():
                        continue  # the client has gone, and will send the batch again
                    if isinstance(outcome, Exception):
                        done.set_exception(outcome)
                    else:
                        done.set_result(outcome)
                rest = begun + self._apart - time.monotonic()
                if rest > 0 and len(group) > 1 and len(queue.waiting) < _GROUP:
                    await asyncio.sleep(rest)
        finally:
            for _, done in group:  # empty unless the server is being stopped
                done.cancel()
            queue.running -= 1
            if not queue.running and not queue.waiting:
                self._queues.pop(name, None)
