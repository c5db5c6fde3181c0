"""Batches that wait are processed together; a batch that comes alone does not wait for others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from weft_api.streaming.batch_queue import BatchQueue


class Work:
    """Notes the groups that it gets."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []

    def __call__(self, batches: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(batches))
        return [ValueError("odd") if batch % 2 else batch for batch in batches]


def test_groups_of_several_batches_begin_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep

    async def scenario() -> list[list[int]]:
        work, over = Work(), asyncio.Event()

        async def rest(seconds: float) -> None:
            assert 0 < seconds <= 3600
            await over.wait()

        monkeypatch.setattr(asyncio, "sleep", rest)
        queue = BatchQueue[int, int](groups_at_once=1, apart=3600)
        first = [asyncio.create_task(queue.run("attempt", batch, work)) for batch in (0, 2, 4)]
        await asyncio.gather(*first)
        later = []
        for batch in (6, 8, 10):
            later.append(asyncio.create_task(queue.run("attempt", batch, work)))
            await sleep(0.01)  # long enough for a batch that does not wait
        assert not any(task.done() for task in later)
        assert await queue.run("another", 12, work) == 12
        over.set()
        assert await asyncio.gather(*later) == [6, 8, 10]
        return work.groups

    assert asyncio.run(scenario()) == [[0, 2, 4], [12], [6, 8, 10]]


def test_a_batch_that_comes_alone_does_not_wait() -> None:
    async def scenario() -> None:
        queue = BatchQueue[int, int](groups_at_once=1, apart=3600)
        for batch in range(0, 10, 2):
            assert await queue.run("attempt", batch, Work()) == batch

    asyncio.run(scenario())


def test_a_whole_group_does_not_wait() -> None:
    async def scenario() -> None:
        queue = BatchQueue[int, int](groups_at_once=1, apart=3600)
        outcomes = await asyncio.gather(*(queue.run("attempt", 2 * batch, Work()) for batch in range(128)))
        assert outcomes == [2 * batch for batch in range(128)]

    asyncio.run(scenario())


def test_a_batch_that_fails_fails_alone() -> None:
    async def scenario() -> None:
        queue, work = BatchQueue[int, int](), Work()
        good, bad = asyncio.create_task(queue.run("a", 2, work)), asyncio.create_task(queue.run("a", 3, work))
        assert await good == 2
        with pytest.raises(ValueError, match="odd"):
            await bad

    asyncio.run(scenario())
