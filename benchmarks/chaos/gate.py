"""A way between callers and servers that passes bytes on, until it is closed, slow or broken."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

Way = Literal["open", "closed", "silent", "slow", "broken"]
"""Bytes pass; connections are ended at once; they are taken and nothing is said; each piece is late; requests of HTTP
are answered with 500."""
_BROKEN = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_LATE = 0.3  # seconds
_BUFFER = 64 * 1024


class Gate:
    """Listens at ``url`` for the servers at these ports of this machine, which take turns; a dead one is left out."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._way: Way = "open"
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gate", daemon=True)
        self._thread.start()
        opened = asyncio.run_coroutine_threadsafe(self._open(), self._loop)
        self.url = f"http://127.0.0.1:{opened.result()}"

    def go(self, way: Way) -> None:
        """From now on all connections go this way; those that are open are cut."""

        def change() -> None:
            self._way = way
            for task in self._tasks:
                task.cancel()

        self._loop.call_soon_threadsafe(change)

    def close(self) -> None:
        self.go("closed")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _open(self) -> int:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, backlog=512)
        return int(server.sockets[0].getsockname()[1])

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError, asyncio.LimitOverrunError):
                await self._talk(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match self._way:
            case "closed":
                return
            case "silent":
                await asyncio.Event().wait()
            case "broken":
                await reader.readuntil(b"\r\n\r\n")
                writer.write(_BROKEN)
                await writer.drain()
            case "open" | "slow":
                server = await self._connect()
                if server is None:
                    return
                try:
                    ways = [
                        asyncio.create_task(self._pass(*ends)) for ends in ((reader, server[1]), (server[0], writer))
                    ]
                    try:
                        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for way in ways:
                            way.cancel()
                finally:
                    server[1].close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for port in random.sample(self._ports, len(self._ports)):
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(_BUFFER):
                if self._way == "slow":
                    await asyncio.sleep(_LATE)
                target.write(data)
                await target.drain()
