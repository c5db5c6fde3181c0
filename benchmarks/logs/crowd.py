"""Followers as the API sees them: HTTP connections that read server-sent events. A process of its own: ``python -m``.

Reads a line of JSON: ``url`` of the API, and ``followers`` (token and job of each). Says "ready" once each has got its
job's state. Says what each has got once all streams have ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
import time
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 120.0
"""Seconds that they may take to connect, and that their streams may take to end."""
_AT_ONCE = 32
"""Followers that connect at the same time."""
_LINE = re.compile(rb'"text": ?"\d+ (\d+) (\d+) ')
_STATE = b"event: state\n"
_END = b"event: end\n"


class Follower(asyncio.Protocol):
    """One stream. A line ``RANK NUMBER DUE …`` is a number, and the moment at which the learner had to write it."""

    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._request = request
        self._rest = b""
        self.follows: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.ended = False
        self.numbers: list[int] = []
        self.ages: list[tuple[int, int]] = []
        """When each line was due, and how much later it came; in nanoseconds."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        # The API sends whole events in a chunk, so the heads of the chunks lie between the events.
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if found := _LINE.search(event):
                due = int(found[2])
                self.numbers.append(int(found[1]))
                self.ages.append((due, now - due))
            elif _STATE in event and not self.follows.done():
                self.follows.set_result(None)
            elif _END in event:
                self.ended = True
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.follows.done():
            self.follows.set_exception(ConnectionError(f"the API refused a follower: {self._rest[:500]!r}"))
        self.gone.set_result(None)


async def main(order: dict[str, Any]) -> None:
    url = urlsplit(order["url"])
    room = asyncio.Semaphore(_AT_ONCE)

    async def follow(token: str, job_id: str) -> Follower:
        request = (
            f"GET /api/v1/jobs/{job_id}/logs/follow HTTP/1.1\r\nHost: {url.netloc}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        )
        async with room:
            _, follower = await asyncio.get_running_loop().create_connection(
                lambda: Follower(request.encode()), url.hostname, url.port
            )
            await follower.follows
        return follower

    async with asyncio.timeout(PATIENCE):
        followers = await asyncio.gather(*(follow(token, job_id) for token, job_id in order["followers"]))
    print('"ready"', flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # the jobs have ended
    if followers:
        await asyncio.wait([follower.gone for follower in followers], timeout=PATIENCE)
    told = [{"ended": each.ended, "numbers": each.numbers, "ages": each.ages} for each in followers]
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    os.nice(5)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection for each follower
    asyncio.run(main(json.loads(sys.stdin.readline())))
