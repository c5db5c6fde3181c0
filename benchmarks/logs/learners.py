"""Learners as the API sees them: HTTP clients with an attempt's token. A process of its own: ``python -m``.

Reads a line of JSON: ``urls``, ``learners`` (token and rank of each), ``seconds``, and either ``every`` (seconds
between a learner's lines, each with its number and when it was written) or ``flood`` (lines of 100 bytes in each batch,
sent one batch after the other). Says "ready", waits for "go", and says how many lines of each have been taken in.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

LINGER = 0.05
"""Seconds between two batches, as the agent has it."""
_AT_ONCE = 32
"""Learners that ask for their start grants at the same time."""
_MOST = 2000
_AGAIN = 0.1  # seconds after which a failed call is tried again


class Learner:
    """One connection, one batch in flight at a time, each sent until it is taken in."""

    def __init__(self, number: int, urls: list[str], token: str, rank: int) -> None:
        self._urls = urls[number % len(urls) :] + urls[: number % len(urls)]
        self._token = token
        self._rank = rank
        self._instance = str(uuid.uuid4())
        self._sequence = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.taken_in = 0

    async def start(self) -> None:
        await self._call("start", self._head() + ',"hostname":"bench"}')

    async def steady(self, seconds: float, every: float) -> None:
        """A line from time to time; those that have come meanwhile make a batch."""
        written = 0
        # Not all in the same moment: gangs do not write in step.
        due = time.monotonic() + random.random() * every
        end = due + seconds
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            lines: list[str] = []
            while due <= time.monotonic() and len(lines) < _MOST:
                # When it was due, not when this process came to it: a late batch does not look fast.
                lines.append(self._line(f"{self._rank} {written} {int(due * 1e9)} step 1234: loss 0.4321"))
                written += 1
                due += every
            await self._send(",".join(lines), len(lines))
            await asyncio.sleep(LINGER)

    async def flood(self, seconds: float, lines: int) -> None:
        batch = ",".join([self._line("x" * 99)] * lines)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self._send(batch, lines)

    def _head(self) -> str:
        return f'{{"rank":{self._rank},"instance":"{self._instance}"'

    def _line(self, text: str) -> str:
        return f'{{"t":{int(time.time() * 1000)},"s":"{text}"}}'

    async def _send(self, lines: str, count: int) -> None:
        await self._call("logs", f'{self._head()},"sequence":{self._sequence},"lines":[{lines}]}}')
        self._sequence += 1
        self.taken_in += count

    async def _call(self, verb: str, body: str) -> None:
        while True:
            try:
                status = await self._post(verb, body.encode())
            except (OSError, EOFError):
                status = 0
                if self._streams is not None:
                    self._streams[1].close()
                self._streams = None
                self._urls.append(self._urls.pop(0))
            if 200 <= status < 300:
                return
            if 400 <= status < 500 and status != 429:
                raise RuntimeError(f"{verb} was answered with {status}")
            await asyncio.sleep(_AGAIN)

    async def _post(self, verb: str, body: bytes) -> int:
        url = urlsplit(self._urls[0])
        if self._streams is None:
            self._streams = await asyncio.open_connection(url.hostname, url.port)
        reader, writer = self._streams
        head = (
            f"POST /api/v1/learner/{verb} HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
        status, *headers = answer.decode("latin-1").split("\r\n")
        length = next(
            (int(header.split(":")[1]) for header in headers if header.lower().startswith("content-length:")), 0
        )
        await reader.readexactly(length)
        return int(status.split()[1])


async def main(order: dict[str, Any]) -> None:
    learners = [Learner(number, order["urls"], token, rank) for number, (token, rank) in enumerate(order["learners"])]
    room = asyncio.Semaphore(_AT_ONCE)

    async def start(learner: Learner) -> None:
        async with room:
            await learner.start()

    await asyncio.gather(*(start(learner) for learner in learners))
    print('"ready"', flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    if "flood" in order:
        await asyncio.gather(*(learner.flood(order["seconds"], order["flood"]) for learner in learners))
    else:
        await asyncio.gather(*(learner.steady(order["seconds"], order["every"]) for learner in learners))
    print(json.dumps([learner.taken_in for learner in learners]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
