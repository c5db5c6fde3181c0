"""``python -m weft_embedded.forward HOST PORT TO_PORT``: passes TCP connections on to a port of 127.0.0.1.

SeaweedFS opens its gRPC port, which requires no credentials, wherever its S3 port listens. So it listens on 127.0.0.1
alone, and this program passes on the bytes that other machines send to S3, unchanged, so that signatures stay valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys

_CHUNK = 256 << 10
_BACKLOG = 1024


async def serve(host: str, port: int, to_port: int) -> None:
    """Listen and pass on, until cancelled. Raises OSError when it can't listen."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tasks: set[asyncio.Task[None]] = set()
    with socket.create_server((host, port), family=family, backlog=_BACKLOG) as listener:
        listener.setblocking(False)
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError:  # out of file descriptors, say: those that are served may end meanwhile
                await asyncio.sleep(0.1)
                continue
            task = asyncio.create_task(_pass_on(client, to_port))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def _pass_on(client: socket.socket, to_port: int) -> None:
    """Pass on both directions of one connection. If the server is away, the connection is closed."""
    with client, socket.socket() as server, contextlib.suppress(OSError):
        for connection in (client, server):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(server, ("127.0.0.1", to_port))
        ways = [asyncio.create_task(_copy(client, server)), asyncio.create_task(_copy(server, client))]
        try:
            await asyncio.gather(*ways)
        finally:
            for way in ways:
                way.cancel()


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(_CHUNK))
    while size := await loop.sock_recv_into(source, buffer):
        await loop.sock_sendall(target, buffer[:size])
    target.shutdown(socket.SHUT_WR)


def main(arguments: list[str]) -> int:
    host, port, to_port = arguments
    # The first process of a container has no default action for SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        asyncio.run(serve(host, int(port), int(to_port)))
    except OSError as error:
        print(f"can't listen at {host} port {port}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
