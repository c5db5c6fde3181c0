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


def test_groups_of_several_batches_begin_apart() -> None:
    async def scenario() -> list[list[int]]:
        work = Work()
        queue = BatchQueue[int, int](groups_at_once=1, apart=0.2)
        first = [asyncio.create_task(queue.run("attempt", batch, work)) for batch in (0, 2, 4)]
        await asyncio.gather(*first)
        later = []
        for batch in range(6, 12, 2):  # each comes after the one before could have been processed
            later.append(asyncio.create_task(queue.run("attempt", batch, work)))
            await asyncio.sleep(0.01)
        assert await asyncio.gather(*later) == [6, 8, 10]
        assert await queue.run("another", 12, work) == 12
        return work.groups

    assert asyncio.run(scenario()) == [[0, 2, 4], [6, 8, 10], [12]]


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
