"""SSH into a learner, without a server for it there: ``weft ssh-proxy`` speaks SSH with the client that has started it,
and opens a tunnel for each command, shell and forwarded port.

Nobody else can reach this server: it talks through the pipes of the client's ``ProxyCommand``. The user's sign-in at
Weft is the credential, so it asks for no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh

from weft.errors import WeftError
from weft.inside import Open
from weft.transport.tunnel import PIECE, Frame, Tunnel

if TYPE_CHECKING:
    from asyncssh import SSHReader, SSHServerProcess, SSHWriter

HOST_KEY_NAME = "weft"
"""The name under which ``known_hosts`` has the key, whatever job it is."""
_HERE = ("localhost", "127.0.0.1", "::1")
_OWN_FAILURE = 255


def host_key(folder: Path) -> asyncssh.SSHKey:
    """This machine's key for the server, made when it is first needed, with a ``known_hosts`` beside it."""
    path = folder / "host_key"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = asyncssh.generate_private_key("ssh-ed25519")
        draft = folder / f"host_key.{os.getpid()}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(made.export_private_key())
        with contextlib.suppress(FileExistsError):  # another process was faster, and its key counts
            os.link(draft, path)
        draft.unlink()
    key = asyncssh.read_private_key(path)
    known = f"{HOST_KEY_NAME} {key.export_public_key().decode()}"
    if not (folder / "known_hosts").exists() or (folder / "known_hosts").read_text() != known:
        (folder / "known_hosts").write_text(known)
    return key


def serve(open_tunnel: Open, key: asyncssh.SSHKey) -> None:
    """Be the SSH server of the client at the other end of standard input and output, until it goes."""
    asyncio.run(_serve(open_tunnel, key))


async def _serve(open_tunnel: Open, key: asyncssh.SSHKey) -> None:
    ours, theirs = socket.socketpair()
    for pump in (_from_client, _to_client):
        threading.Thread(target=pump, args=(theirs,), daemon=True).start()

    async def run(process: SSHServerProcess[bytes]) -> None:
        await _run(process, open_tunnel)

    connection = await asyncssh.run_server(
        ours,
        server_factory=lambda: _Server(open_tunnel),
        server_host_keys=[key],
        process_factory=run,
        encoding=None,
        line_editor=False,
        allow_scp=False,
    )
    await connection.wait_closed()


def _from_client(there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, PIECE):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)


def _to_client(there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := there.recv(PIECE):
            left = memoryview(data)
            while left:
                left = left[os.write(1, left) :]


class _Server(asyncssh.SSHServer):
    def __init__(self, open_tunnel: Open) -> None:
        self._open = open_tunnel

    def begin_auth(self, username: str) -> bool:
        return False  # nobody else can reach it: see above

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        if dest_host not in _HERE:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, f"only ports of the learner itself, not of {dest_host}"
            )

        async def forward(reader: SSHReader[bytes], writer: SSHWriter[bytes]) -> None:
            try:
                with await asyncio.to_thread(self._open, "forward", port=dest_port) as tunnel:
                    sending = asyncio.create_task(_send(reader, tunnel))
                    await _receive(tunnel, {Frame.OUTPUT: writer})
                    sending.cancel()
            except WeftError:
                pass  # the client sees that the connection has ended
            writer.close()

        return forward


async def _run(process: SSHServerProcess[bytes], open_tunnel: Open) -> None:
    """Run a command, or a shell, and end with its exit code."""
    try:
        if process.subsystem:
            raise WeftError(f"a learner has no {process.subsystem}; use `weft cp`")
        opening: dict[str, Any] = {"command": ["sh", "-c", process.command] if process.command else None}
        if process.term_type:
            columns, rows, *_ = process.term_size
            opening["terminal"] = {"rows": rows or 24, "columns": columns or 80, "term": process.term_type}
        with await asyncio.to_thread(open_tunnel, "exec" if process.command else "shell", **opening) as tunnel:
            sending = asyncio.create_task(_send(process.stdin, tunnel))
            await _receive(tunnel, {Frame.OUTPUT: process.stdout, Frame.ERRORS: process.stderr})
            sending.cancel()
            tunnel.check()
            code = int(tunnel.end["exit_code"])
    except WeftError as error:
        process.stderr.write(f"weft: {error}\n".encode())
        code = _OWN_FAILURE
    process.exit(code)


async def _receive(tunnel: Tunnel, writers: dict[Frame, SSHWriter[bytes]]) -> None:
    """Pass on what the agent sends. A client that reads slowly stops the command, and nothing else."""
    frames = iter(tunnel)
    while (found := await asyncio.to_thread(next, frames, None)) is not None:
        frame, data = found
        if frame in writers:
            writers[frame].write(data)
            with contextlib.suppress(OSError):
                await writers[frame].drain()
        elif frame is Frame.DONE:
            for writer in writers.values():
                writer.write_eof()


async def _send(reader: SSHReader[bytes], tunnel: Tunnel) -> None:
    """Pass on what the client sends, to its end."""
    while True:
        try:
            data = await reader.read(PIECE)
        except asyncssh.TerminalSizeChanged as size:
            await asyncio.to_thread(tunnel.tell, Frame.RESIZE, [size.height, size.width])
            continue
        except asyncssh.SignalReceived as received:
            await asyncio.to_thread(tunnel.tell, Frame.SIGNAL, received.signal)
            continue
        except asyncssh.BreakReceived:
            await asyncio.to_thread(tunnel.tell, Frame.SIGNAL, "INT")
            continue
        except (OSError, asyncssh.Error):
            tunnel.close()
            return
        if not data:
            await asyncio.to_thread(tunnel.tell, Frame.DONE)
            return
        if not await asyncio.to_thread(tunnel.write, data):
            return
