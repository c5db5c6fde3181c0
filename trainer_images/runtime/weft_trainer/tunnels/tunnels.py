"""The tunnels of a learner."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from weft_trainer.http import Closed, WebSocket
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.service.client import ApiClient
from weft_trainer.tunnels.command import Command, Terminal
from weft_trainer.tunnels.forward import Forward
from weft_trainer.tunnels.place import Place
from weft_trainer.tunnels.profiles import Profiles
from weft_trainer.tunnels.stream import Frame, Stream

_MOST = 64
"""Tunnels of one learner that may be open at once, whatever the API allows."""
_REMEMBERED = 1000
_SHORTEST_KEY, _LONGEST_KEY = 16, 100
_SILENCE = 120.0
_PATIENCE = 5.0
"""Seconds for the last words at the program's end."""
_ARCHIVE = Path(__file__).with_name("archive.py")
_ENDED = "the program of this learner has ended"
_SHELLS = ("bash", "sh")
_EVENT_FOLDERS = ("$RESULT_DIR", "$LOG_DIR", ".")
"""Where programs write TensorBoard's event files. The first gives them the names that they have among the results."""


class _Work(Protocol):
    def stop(self) -> None: ...


class _Over:
    """Ends a recording."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def stop(self) -> None:
        self.event.set()


class Refused(Exception):
    """The text says why, for the user."""


class Tunnels:
    """Opens the tunnels that are asked for. Each has its own connection and its own threads."""

    def __init__(self, api: ApiClient, watchdog: Watchdog, profiles: Profiles) -> None:
        self._api = api
        self._profiles = profiles
        self._watchdog = watchdog
        self._lock = threading.Lock()
        self._place: Place | None = None
        self._trouble = "the program of this learner has not started yet"
        self._asked: deque[str] = deque(maxlen=_REMEMBERED)
        self._open: dict[threading.Thread, _Work | None] = {}
        self._resumable: dict[tuple[str, str], Stream] = {}
        """Streams by the kind of their tunnel and the key that their client has chosen."""

    def begin(self, place: Place) -> None:
        """The program starts there."""
        with self._lock:
            self._place = place

    def end(self) -> None:
        """The program has ended: end what is open, and say so."""
        with self._lock:
            self._place, self._trouble = None, _ENDED
            left = dict(self._open)
        for work in left.values():
            if work is not None:
                work.stop()
        for thread in left:
            thread.join(_PATIENCE)

    def asked(self, tunnels: Sequence[Mapping[str, Any]]) -> None:
        """A heartbeat's answer asks for these. It may do so again while a connection is under way."""
        for tunnel in tunnels:
            name = str(tunnel["id"])
            with self._lock:
                if name in self._asked:
                    continue
                self._asked.append(name)
                thread = threading.Thread(target=self._serve, args=(name, tunnel["kind"]), name="tunnel", daemon=True)
                self._open[thread] = None
            thread.start()

    def _serve(self, name: str, kind: str) -> None:
        try:
            socket = self._api.tunnel(name, _SILENCE)
            stream = Stream(socket)
            try:
                asked = _request(stream)
                if "resume" in asked:
                    self._resume(kind, asked, socket)
                    return
                with self._kept(kind, asked, stream):
                    stream.finish(**self._last_word(stream, kind, asked))
            except (Refused, ValueError) as error:
                stream.finish(error=str(error))
        except Closed:
            pass  # the client, or the API, has gone
        finally:
            with self._lock:
                self._open.pop(threading.current_thread(), None)

    @contextmanager
    def _kept(self, kind: str, asked: Mapping[str, Any], stream: Stream) -> Iterator[None]:
        """Let a client with a key come back over another connection, until the context is left."""
        key = asked.get("key")
        if key is None:
            yield
            return
        if not isinstance(key, str) or not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
            raise Refused(f"key: expected a text of {_SHORTEST_KEY} to {_LONGEST_KEY} characters")
        with self._lock:
            if (kind, key) in self._resumable:
                raise Refused("key: another tunnel has it")
            stream.resumable = True
            self._resumable[kind, key] = stream
        try:
            yield
        finally:
            with self._lock:
                del self._resumable[kind, key]

    def _resume(self, kind: str, asked: Mapping[str, Any], socket: WebSocket) -> None:
        """Raises: Refused."""
        received, taken = asked.get("received"), asked.get("taken")
        with self._lock:
            stream = self._resumable.get((kind, str(asked["resume"])))
        if not isinstance(received, int) or not isinstance(taken, int):
            raise Refused("received and taken: expected numbers of bytes")
        if stream is None or not stream.resume(socket, received, taken):
            raise Refused("the tunnel is over")

    def _last_word(self, stream: Stream, kind: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if kind == "forward":
                return self._forward(stream, asked)
            if kind == "profile":
                return self._profile(stream, asked)
            code = self._command(stream, kind, asked).run()
            with self._lock:
                return {"exit_code": code} if self._place is not None else {"error": _ENDED}
        except (Refused, ValueError) as error:
            return {"error": str(error)}
        except Closed:
            raise
        except Exception as error:
            traceback.print_exc()
            return {"error": f"the learner's agent failed: {type(error).__name__}: {error}"}

    def _command(self, stream: Stream, kind: str, asked: Mapping[str, Any]) -> Command:
        """Raises: Refused, ValueError."""
        with self._lock:
            place = self._admitted()
            argv = _argv(kind, asked, place)
            terminal = Terminal.wanted(asked.get("terminal"))
            try:
                command = Command(stream, argv, terminal, place, self._watchdog)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise Refused(f"{argv[0]} can't be started: {reason or error}") from error
            self._open[threading.current_thread()] = command
            return command

    def _forward(self, stream: Stream, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._admitted()
        port = asked.get("port")
        if port is None:  # the client only asks whether the way is open
            return {}
        if not isinstance(port, int) or not 0 < port < 65536:
            raise Refused(f"port: expected a number from 1 to 65535, not {port!r}")
        try:
            forward = Forward(stream, port)
        except OSError as error:
            raise Refused(f"nothing answers at port {port} of this learner: {error.strerror or error}") from error
        with self._lock:
            self._admitted()
            self._open[threading.current_thread()] = forward
        error_text = forward.run()
        return {"error": error_text} if error_text else {}

    def _profile(self, stream: Stream, asked: Mapping[str, Any]) -> dict[str, Any]:
        over = _Over()
        with self._lock:
            self._admitted()
            self._open[threading.current_thread()] = over
        return self._profiles.record(stream, asked, over.event)

    def _admitted(self) -> Place:
        if self._place is None:
            raise Refused(self._trouble)
        if len(self._open) > _MOST:
            raise Refused(f"this learner has {_MOST} tunnels open already")
        return self._place


def _request(stream: Stream) -> dict[str, Any]:
    """The client's first frame. Raises: Refused, ValueError, Closed."""
    frame, data = stream.receive()
    asked = json.loads(data)
    if frame is not Frame.OPEN or not isinstance(asked, dict):
        raise Refused("expected a frame OPEN with a JSON object")
    return asked


def _argv(kind: str, asked: Mapping[str, Any], place: Place) -> list[str]:
    if kind == "events":
        return [sys.executable, "-I", str(_ARCHIVE), kind, *_EVENT_FOLDERS]
    if kind in ("get", "put"):
        path = asked.get("path")
        if not isinstance(path, str) or not path or "\0" in path:
            raise Refused("path: expected a text")
        # -I: neither the job's code nor its PYTHONPATH takes the place of a module.
        return [sys.executable, "-I", str(_ARCHIVE), kind, path]
    command = asked.get("command")
    if command is None and kind == "shell":
        search = place.env.get("PATH")
        return [next((found for name in _SHELLS if (found := shutil.which(name, path=search))), "/bin/sh")]
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise Refused("command: expected a list of words")
    found = shutil.which(command[0], path=place.env.get("PATH")) if "/" not in command[0] else command[0]
    if found is None:
        raise Refused(f"{command[0]}: there is no such command in the learner's PATH")
    return [found, *command[1:]]
