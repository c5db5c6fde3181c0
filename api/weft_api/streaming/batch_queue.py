"""Queues of batches (of log lines, or of metrics) that learners send.

All batches of an attempt that wait are processed together. A gang of a thousand learners then costs a transaction now
and then, instead of one for each batch, and leaves room for other requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

T = TypeVar("T")

_GROUPS_AT_ONCE = 2
"""Of one attempt. The database orders them: one group is written while the next is prepared."""
_GROUP = 64
"""Batches that are processed together, and their bytes: the next batch waits for all of them."""
_GROUP_BYTES = 4 << 20


@dataclass
class _AttemptQueue(Generic[T]):
    waiting: deque[tuple[bytes, asyncio.Future[T]]] = field(default_factory=deque)
    running: int = 0

    def next_group(self) -> list[tuple[bytes, asyncio.Future[T]]]:
        taken: list[tuple[bytes, asyncio.Future[T]]] = []
        size = 0
        while self.waiting and len(taken) < _GROUP and (not taken or size + len(self.waiting[0][0]) <= _GROUP_BYTES):
            taken.append(self.waiting.popleft())
            size += len(taken[-1][0])
        return taken


class BatchQueue(Generic[T]):
    """A batch that waits for its turn holds no thread and no connection. Used from the event loop only.

    Args:
        threads: how many threads, and so connections to Postgres, all attempts together may use.
    """

    def __init__(self, threads: int = 8) -> None:
        self._limiter = CapacityLimiter(threads)
        self._queues: dict[str, _AttemptQueue[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Batches whose turn has not come."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    async def run(self, attempt: str, batch: bytes, work: Callable[[Sequence[bytes]], Sequence[T | Exception]]) -> T:
        """The result of ``work`` for ``batch``, when it is this attempt's turn.

        Args:
            attempt: any name of the attempt, such as its token.
            work: runs in a thread, with this batch and those of the same attempt that wait; returns the outcome of
                each batch. An exception that it raises is the outcome of all of them.
        """
        queue = self._queues.setdefault(attempt, _AttemptQueue())
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        queue.waiting.append((batch, done))
        if queue.running < _GROUPS_AT_ONCE:
            queue.running += 1
            task = asyncio.create_task(self._drain(attempt, queue, work))
            self._tasks.add(task)  # or it might be collected while it runs
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _drain(
        self, attempt: str, queue: _AttemptQueue[T], work: Callable[[Sequence[bytes]], Sequence[T | Exception]]
    ) -> None:
        group: list[tuple[bytes, asyncio.Future[T]]] = []
        try:
            while group := queue.next_group():
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
        finally:
            for _, done in group:  # empty unless the server is being stopped
                done.cancel()
            queue.running -= 1
            if not queue.running and not queue.waiting:
                self._queues.pop(attempt, None)
