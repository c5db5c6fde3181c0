"""The work of the commands ``exec``, ``shell``, ``cp`` and ``forward``, through a tunnel."""

from __future__ import annotations

import contextlib
import io
import os
import queue
import shutil
import signal
import socket
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from weft.errors import TransferError, TunnelBroken, WeftError
from weft.transport.tunnel import PIECE, Frame, Tunnel
from weft.ui.ansi import visible
from weft.unpack import unpack

Open = Callable[..., Tunnel]
"""Opens a tunnel of a kind; its further arguments are those of that kind."""


def run(open_tunnel: Open, command: list[str] | None, *, terminal: bool) -> int:
    """Run a command, or a shell; returns its exit code.

    Raises:
        WeftError: it could not be started, or its end is not known.
    """
    opening: dict[str, Any] = {"command": command}
    if terminal:
        size = shutil.get_terminal_size()
        opening["terminal"] = {"rows": size.lines, "columns": size.columns, "term": os.environ.get("TERM", "xterm")}
    with open_tunnel("exec" if command else "shell", **opening) as tunnel:
        tunnel.watch = partial(_show_break, tunnel, terminal)
        with _raw() if terminal else contextlib.nullcontext(), _signals(tunnel, terminal):
            threading.Thread(target=_send_input, args=(tunnel,), daemon=True).start()
            for frame, data in tunnel:
                if frame in (Frame.OUTPUT, Frame.ERRORS):
                    _write(1 if frame is Frame.OUTPUT else 2, data)
        tunnel.check()
        return int(tunnel.end["exit_code"])


def output_of(open_tunnel: Open, command: list[str]) -> str:
    """What a command prints to its standard output.

    Raises:
        WeftError: it could not be started, its end is not known, or it failed; the text is then its standard error.
    """
    printed: dict[Frame, bytes] = {Frame.OUTPUT: b"", Frame.ERRORS: b""}
    with open_tunnel("exec", command=command) as tunnel:
        tunnel.tell(Frame.DONE)
        for frame, data in tunnel:
            if frame in printed:
                printed[frame] += data
        tunnel.check()
        if tunnel.end["exit_code"]:
            raise WeftError(printed[Frame.ERRORS][:2000].decode(errors="replace").strip() or f"{command[0]} failed")
    return printed[Frame.OUTPUT].decode()


def _show_break(tunnel: Tunnel, terminal: bool, reason: str | None) -> None:
    start, end = ("\r\n", "\r\n") if terminal else ("", "\n")
    text = f"{reason}: reconnecting, for a minute at most" if reason else "reconnected"
    _write(2, f"{start}weft: {visible(text)}{end}".encode())
    if terminal and not reason:
        size = os.get_terminal_size(0)  # it may have changed meanwhile
        tunnel.tell(Frame.RESIZE, [size.lines, size.columns])


def _send_input(tunnel: Tunnel) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := os.read(0, PIECE):
            if not tunnel.write(data):
                return
    tunnel.tell(Frame.DONE)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


@contextmanager
def _raw() -> Iterator[None]:
    """The terminal passes each key on, Ctrl-C too."""
    import termios
    import tty

    file = 0
    before = termios.tcgetattr(file)
    tty.setraw(file)
    try:
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


@contextmanager
def _signals(tunnel: Tunnel, terminal: bool) -> Iterator[None]:
    """Pass on the terminal's new sizes, and without a terminal Ctrl-C: the second one ends the tunnel."""
    told: queue.SimpleQueue[tuple[Frame, Any]] = queue.SimpleQueue()
    interrupted = False

    def send() -> None:
        # In a thread of its own: the signal may come while the main thread sends.
        while tunnel.tell(*told.get()):
            pass

    def resized(*_: object) -> None:
        size = os.get_terminal_size(0)
        told.put((Frame.RESIZE, [size.lines, size.columns]))

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        told.put((Frame.SIGNAL, "INT"))

    threading.Thread(target=send, daemon=True).start()
    number, handler = (signal.SIGWINCH, resized) if terminal else (signal.SIGINT, interrupt)
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


# --- files -----------------------------------------------------------------------------------------------------------


def fetch(open_tunnel: Open, path: str, target: Path, warn: Callable[[str], None]) -> int:
    """Copy a file or a folder out of a learner; returns the number of files.

    Raises:
        WeftError: there is no such file, or not all of it arrived.
    """
    if not (target.is_dir() or target.absolute().parent.is_dir()):
        raise TransferError(f"there is no folder {target.absolute().parent}")
    root = target / _name(path) if target.is_dir() else target
    with open_tunnel("get", path=path) as tunnel:
        incoming = _Incoming(tunnel)
        try:
            files = unpack(io.BufferedReader(incoming), root, warn)
        except TransferError:
            incoming.drain()
            if incoming.complaint and not incoming.received:  # there was nothing to unpack
                raise TransferError(incoming.complaint) from None
            raise
        incoming.drain()
        tunnel.check()
        for line in incoming.complaint.splitlines():
            warn(line)
        if tunnel.end.get("exit_code") != 0:
            raise TransferError("the learner could not send all of it")
        return files


def _name(path: str) -> str:
    """The name of a copy in a folder of this machine. A learner must not choose it: it might choose `.bashrc`."""
    last = path.rstrip("/").rpartition("/")[2].strip("${}")
    return last if last not in ("", ".", "..") else "files"


class _Incoming(io.RawIOBase):
    """The output of a command, as a file."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._frames = iter(tunnel)
        self._rest = memoryview(b"")
        self._errors = bytearray()
        self.received = 0

    @property
    def complaint(self) -> str:
        return self._errors[:2000].decode(errors="replace").strip()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            frame, data = next(self._frames, (None, b""))
            if frame is None:
                return 0
            if frame is Frame.OUTPUT:
                self._rest = memoryview(data)
                self.received += len(data)
            elif frame is Frame.ERRORS:
                self._errors += data
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def drain(self) -> None:
        with contextlib.suppress(TunnelBroken):
            while self.read(PIECE):
                pass


def send(open_tunnel: Open, source: Path, path: str, warn: Callable[[str], None]) -> int:
    """Copy a file or a folder into a learner; returns the number of files.

    Raises:
        WeftError: there is no such file, or not all of it arrived.
    """
    if not source.exists():
        raise TransferError(f"there is no {source}")
    with open_tunnel("put", path=path) as tunnel:
        failure: list[WeftError] = []
        packed = [0]

        def pack() -> None:
            try:
                packed[0] = _pack(source, tunnel, warn)
            except (OSError, tarfile.TarError) as error:
                failure.append(TransferError(f"{source}: {error}"))
                tunnel.close()
            except _Gone:
                pass
            else:
                tunnel.tell(Frame.DONE)

        worker = threading.Thread(target=pack, daemon=True)
        worker.start()
        complaint = bytearray()
        try:
            for frame, data in tunnel:
                if frame is Frame.ERRORS:
                    complaint += data
        except TunnelBroken:
            worker.join(1)
            raise failure[0] if failure else sys.exception() or TunnelBroken("the tunnel broke") from None
        tunnel.check()
        if tunnel.end.get("exit_code") != 0:
            said = complaint[:2000].decode(errors="replace").strip()
            raise TransferError(said or "the learner could not store all of it")
        worker.join()
        return packed[0]


class _Gone(Exception):
    pass


class _Outgoing(io.RawIOBase):
    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self._tunnel.write(bytes(data)):
            raise _Gone
        return len(data)


def _pack(source: Path, tunnel: Tunnel, warn: Callable[[str], None]) -> int:
    files = 0

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal files
        if not (entry.isreg() or entry.isdir() or entry.issym()):
            warn(f"{entry.name} is no file: left out")
            return None
        files += not entry.isdir()
        archive.inodes.clear()  # type: ignore[attr-defined]  # a second name of a file is a file of its own
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    place = source.resolve()
    outgoing: Any = _Outgoing(tunnel)
    with tarfile.open(fileobj=outgoing, mode="w|", bufsize=16 * PIECE) as archive:
        archive.add(place, place.name or "root", filter=chosen)
    return files


# --- ports -----------------------------------------------------------------------------------------------------------


class Forwarder:
    """Listens on this machine, and passes each connection on to a port of a learner.

    Args:
        local: the port here; 0: any that is free.
        complain: called with the reason when a connection fails.

    Raises:
        WeftError: the port here is taken, or the way into the job is closed.
    """

    def __init__(self, open_tunnel: Open, local: int, remote: int, complain: Callable[[str], None]) -> None:
        self._open = open_tunnel
        self._remote = remote
        self._complain = complain
        try:
            self._listener = socket.create_server(("127.0.0.1", local))
        except OSError as error:
            raise WeftError(f"can't listen at 127.0.0.1:{local}: {error.strerror or error}") from error
        self.port: int = self._listener.getsockname()[1]
        with open_tunnel("forward", port=None) as tunnel:  # refused now, not at the first connection
            for _ in tunnel:
                pass
            tunnel.check()

    def serve(self) -> None:
        """Until it is interrupted."""
        with self._listener:
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(connection,), daemon=True).start()

    def _pass_on(self, connection: socket.socket) -> None:
        with connection:
            try:
                with self._open("forward", port=self._remote) as tunnel:
                    threading.Thread(target=self._send, args=(connection, tunnel), daemon=True).start()
                    for frame, data in tunnel:
                        if frame is Frame.OUTPUT:
                            connection.sendall(data)
                        elif frame is Frame.DONE:
                            connection.shutdown(socket.SHUT_WR)
                    tunnel.check()
            except OSError:
                pass  # the program that had connected has gone
            except WeftError as error:
                self._complain(str(error))
            finally:
                with contextlib.suppress(OSError):  # or the other thread would keep it open
                    connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _send(connection: socket.socket, tunnel: Tunnel) -> None:
        with contextlib.suppress(OSError):
            while data := connection.recv(PIECE):
                if not tunnel.write(data):
                    return
            tunnel.tell(Frame.DONE)
            return
        tunnel.close()
