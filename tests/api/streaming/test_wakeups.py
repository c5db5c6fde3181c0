"""The subscription to Redis that all followers of a process share."""

from __future__ import annotations

import asyncio

from weft_api.streaming.wakeups import Wakeups


def test_a_stop_ends_the_subscription_whatever_it_is_doing(redis_url: str) -> None:
    """Python 3.11's ``asyncio.wait_for``, which the Redis client uses, loses a cancellation now and then."""

    async def stopped(steps: int) -> bool:
        wakeups = Wakeups(redis_url)
        wakeups.hear("channel", lambda _: None)
        for _ in range(steps):
            await asyncio.sleep(0)
        closing = asyncio.create_task(wakeups.close())
        await asyncio.wait([closing], timeout=300)
        return closing.done()

    async def check() -> list[int]:
        return [steps for steps in range(60) if not await stopped(steps)]

    assert asyncio.run(check()) == []
