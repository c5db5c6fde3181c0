"""Passes an agent's connection to the process of the API in which its tunnel waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import quote

from starlette.websockets import WebSocket, WebSocketDisconnect

from weft_api.http.problems import not_found

HEADER = "x-weft-hop"
"""Marks a connection that another process of the API passes on: it goes no further."""
_PATIENCE = 10.0


async def pass_on(agent: WebSocket, address: str, tunnel_id: str, rank: int) -> None:
    """Connect to the process at ``address`` with the agent's own token, and pass everything on.

    Raises:
        Problem: not_found: the process does not answer, or refuses.
    """
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, WebSocketException

    headers = {"Authorization": agent.headers.get("authorization", ""), HEADER: "1"}
    url = f"ws://{address}/api/v1/learner/tunnels/{quote(tunnel_id, safe='')}?rank={rank}"
    opening = connect(
        url, additional_headers=headers, compression=None, open_timeout=_PATIENCE, proxy=None, ping_interval=None
    )
    try:
        other = await opening
    except (OSError, TimeoutError, WebSocketException) as error:
        raise not_found("tunnel", tunnel_id) from error
    code, reason = 1011, ""

    async def up() -> None:
        while (message := await agent.receive())["type"] != "websocket.disconnect":
            await other.send(message.get("bytes") or b"")

    async def down() -> None:
        nonlocal code, reason
        try:
            while True:
                data = await other.recv(decode=False)
                await agent.send_bytes(data)
        except ConnectionClosed:
            code, reason = other.close_code or code, other.close_reason or reason

    work: list[asyncio.Task[None]] = []
    try:
        await agent.accept()
        work = [asyncio.create_task(up()), asyncio.create_task(down())]
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await other.close(1000 if work and work[0].done() and not work[0].cancelled() else 1011)
        with suppress(RuntimeError, WebSocketDisconnect):
            await agent.close(code if code not in (1005, 1006) else 1011, reason)
