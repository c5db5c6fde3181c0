"""The relay of a gang: it makes the gang's connections to addresses outside of its network.

Packets from the learners to an address outside arrive at sockets in their network (see
:mod:`weft_workers.supervision.network`). The relay, which is in the machine's network, connects to that address, and
passes on what both sides send. The kernel moves the bytes; they do not come into the process.
"""

from __future__ import annotations

import fcntl
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_core.nowhere import is_nowhere
from weft_workers.supervision import netlink

if TYPE_CHECKING:
    from collections.abc import Sequence

IP_PKTINFO = 8
_SO_ORIGINAL_DST = 80
_DNS = 53
_STREAMS = 1024
"""The most connections of a gang at a time: each takes two threads and six descriptors."""
_QUESTIONS = 128
_CONNECT_SECONDS = 60.0
_DNS_SECONDS = 10.0
_PIECE = 1 << 20
_TOLD = 100
_ABORT = struct.pack("ii", 1, 0)
_RESOLVERS = Path("/etc/resolv.conf")
_About = list[tuple[int, int, bytes]]
_Asker = tuple[Any, ...]


class Relay:
    """
    Args:
        streams: listen for the gang's connections.
        datagrams: get the gang's queries to name servers.
        places: the addresses of this machine, and the otherwise forbidden addresses, that the gang may reach.
    """

    def __init__(
        self, streams: Sequence[socket.socket], datagrams: Sequence[socket.socket], places: Sequence[netlink.Endpoint]
    ) -> None:
        self._streams = streams
        self._datagrams = datagrams
        self._places = frozenset(places)
        self._free = threading.BoundedSemaphore(_STREAMS)
        self._unasked = threading.BoundedSemaphore(_QUESTIONS)
        self._told: set[str] = set()

    def run(self) -> None:
        """Serve them, for ever."""
        _prepare()
        serving = [threading.Thread(target=self._accept, args=[each]) for each in self._streams]
        serving += [threading.Thread(target=self._answer, args=[each]) for each in self._datagrams]
        for thread in serving:
            thread.start()
        for thread in serving:
            thread.join()

    # --- connections ---

    def _accept(self, listener: socket.socket) -> None:
        while True:
            self._free.acquire()
            try:
                inner, _ = listener.accept()
                threading.Thread(target=self._serve, args=[inner], daemon=True).start()
            except (OSError, RuntimeError) as error:  # it has gone again, or there is no room for more just now
                self._free.release()
                self._tell(f"a connection was not accepted: {error}")
                time.sleep(0.1)

    def _serve(self, inner: socket.socket) -> None:
        try:
            with inner:
                outer = self._connect(inner)
                if outer is None:
                    inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                    return
                with outer:
                    _join(inner, outer)
        except (OSError, RuntimeError) as error:
            self._tell(f"a connection was broken off: {error}")
        finally:
            self._free.release()

    def _connect(self, inner: socket.socket) -> socket.socket | None:
        """The connection to the learner's destination. None: it is impossible or forbidden."""
        place = _wanted(inner)
        try:
            if place not in self._places:
                if is_nowhere(place.address):
                    self._tell(f"refused: {place.address} port {place.port} is not for learners")
                    return None
                if not netlink.is_elsewhere(place.address):
                    self._tell(f"refused: {place.address} port {place.port} is an address of this machine")
                    return None
            outer = socket.create_connection(place, timeout=_CONNECT_SECONDS)
            outer.settimeout(None)
            return outer
        except OSError as error:
            self._tell(f"{place.address} port {place.port}: {error}")
            return None

    # --- names ---

    def _answer(self, asked: socket.socket) -> None:
        while True:
            try:
                question, about, _, asker = asked.recvmsg(4096, 256)
            except OSError:
                continue
            if not self._unasked.acquire(blocking=False):
                continue  # it asks again
            try:
                threading.Thread(target=self._ask, args=[asked, question, about, asker], daemon=True).start()
            except RuntimeError:
                self._unasked.release()

    def _ask(self, asked: socket.socket, question: bytes, about: _About, asker: _Asker) -> None:
        """Ask all name servers of the machine; the first answer is the one."""
        try:
            with ExitStack() as opened:
                answers = selectors.DefaultSelector()
                opened.callback(answers.close)
                for server in name_servers():
                    with suppress(OSError):  # of a family that this machine lacks
                        family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
                        outer = opened.enter_context(socket.socket(family, socket.SOCK_DGRAM))
                        outer.connect(server)
                        outer.send(question)
                        answers.register(outer, selectors.EVENT_READ)
                deadline = time.monotonic() + _DNS_SECONDS
                while (left := deadline - time.monotonic()) > 0 and answers.get_map():
                    for key, _ in answers.select(left):
                        try:
                            answer = os.read(key.fd, 1 << 16)
                        except OSError:  # it does not answer; another may
                            answers.unregister(key.fileobj)
                            continue
                        asked.sendmsg([answer], about, 0, asker)  # from the address that it was sent to
                        return
        except OSError as error:
            self._tell(f"a name server could not be asked: {error}")
        finally:
            self._unasked.release()

    def _tell(self, what: str) -> None:
        """Once, in the log of the gang's supervisor."""
        if what not in self._told and len(self._told) < _TOLD:
            self._told.add(what)
            print(f"network: {what}", file=sys.stderr, flush=True)


class Publisher:
    """Leads connections to a learner's own port to the learner. It is in the gang's network.

    Args:
        listeners: listen at these ports, in the machine's network.
    """

    def __init__(self, listeners: Sequence[socket.socket]) -> None:
        self._listeners = listeners
        self._free = threading.BoundedSemaphore(_STREAMS)

    def run(self) -> None:
        """Serve them, for ever."""
        _prepare()
        serving = [threading.Thread(target=self._accept, args=[each]) for each in self._listeners]
        for thread in serving:
            thread.start()
        for thread in serving:
            thread.join()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            self._free.acquire()
            try:
                outer, _ = listener.accept()
                threading.Thread(target=self._serve, args=[outer], daemon=True).start()
            except (OSError, RuntimeError):  # it has gone again, or there is no room for more just now
                self._free.release()
                time.sleep(0.1)

    def _serve(self, outer: socket.socket) -> None:
        try:
            with outer:
                try:
                    inner = socket.create_connection(outer.getsockname()[:2])
                except OSError:  # the program does not listen, or not yet
                    outer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                    return
                with inner:
                    _join(inner, outer)
        except (OSError, RuntimeError):  # it was broken off
            return
        finally:
            self._free.release()


def _prepare() -> None:
    """This process serves many connections, each with threads."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a connection that breaks is an error of that connection
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    threading.stack_size(256 << 10)


def _join(inner: socket.socket, outer: socket.socket) -> None:
    """Pass on what both sides send, until both have ended. Raises: OSError, RuntimeError."""
    for each in (inner, outer):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    broken = threading.Event()
    back = threading.Thread(target=_pass_on, args=[outer, inner, broken], daemon=True)
    back.start()
    _pass_on(inner, outer, broken)
    back.join()


def name_servers() -> list[netlink.Endpoint]:
    """Those of this machine, as its programs know them (man 5 resolv.conf)."""
    try:
        lines = _RESOLVERS.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = [words[1] for line in lines if len(words := line.split()) > 1 and words[0] == "nameserver"]
    return [netlink.Endpoint(address, _DNS) for address in named[:3]] or [netlink.Endpoint("127.0.0.1", _DNS)]


def _wanted(inner: socket.socket) -> netlink.Endpoint:
    """Where a connection was to go before the rules led it to the relay."""
    if inner.family == socket.AF_INET6:
        found = inner.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, 28)
        packed = found[8:24]
    else:
        found = inner.getsockopt(socket.IPPROTO_IP, _SO_ORIGINAL_DST, 16)
        packed = found[4:8]
    return netlink.Endpoint(socket.inet_ntop(inner.family, packed), int.from_bytes(found[2:4], "big"))


def _pass_on(source: socket.socket, target: socket.socket, broken: threading.Event) -> None:
    """All that ``source`` sends, and then its end. A broken connection breaks the other one, too."""
    read, write = os.pipe()
    try:
        with suppress(OSError):  # an ordinary user has only so much
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIECE)
        while there := os.splice(source.fileno(), write, _PIECE):
            while there:
                there -= os.splice(read, target.fileno(), there)
        if not broken.is_set():
            target.shutdown(socket.SHUT_WR)
    except OSError:
        broken.set()
        for each in (source, target):
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                each.shutdown(socket.SHUT_RD)  # the other direction waits there
    finally:
        os.close(read)
        os.close(write)
