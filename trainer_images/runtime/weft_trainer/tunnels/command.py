"""A command in the place of the user's program: the same user, sandbox, control group, folder and environment."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_trainer.http import Closed
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.program.processes import before_exec
from weft_trainer.tunnels.place import Place
from weft_trainer.tunnels.stream import PIECE, Frame, Stream

_HANGUP_GRACE = 10.0
"""Seconds from SIGHUP, when the client has gone, to SIGKILL."""
_QUIET = 500
"""Milliseconds without output after which an ended command's output counts as complete: processes that it has left in
the background may hold the pipe open for ever."""
_END_OF_INPUT = b"\x04"
_SIGNALS = {"INT": signal.SIGINT, "QUIT": signal.SIGQUIT, "TERM": signal.SIGTERM}


class Terminal(NamedTuple):
    rows: int
    columns: int
    kind: str

    @classmethod
    def wanted(cls, told: Any) -> Terminal | None:
        """The terminal of an OPEN frame. Raises: ValueError."""
        if told is None:
            return None
        try:
            return cls(_size(told["rows"]), _size(told["columns"]), str(told.get("term") or "xterm")[:100])
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError("terminal: expected rows, columns and term") from error


class Command:
    """
    Raises:
        OSError: it can't be started.
    """

    def __init__(
        self, stream: Stream, argv: Sequence[str], terminal: Terminal | None, place: Place, watchdog: Watchdog
    ) -> None:
        self._stream = stream
        self._watchdog = watchdog
        self._inputs: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._terminal = terminal is not None
        env = dict(place.env)
        if terminal is None:
            self._popen = subprocess.Popen(
                list(argv),
                env=env,
                cwd=place.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                preexec_fn=before_exec(place.sealed),
            )
            pipes = (self._popen.stdin, self._popen.stdout, self._popen.stderr)
            # Descriptors of their own, which nothing but this object closes.
            self._input, output, errors = (os.dup(pipe.fileno()) for pipe in pipes if pipe is not None)
            self._outputs = [(output, Frame.OUTPUT), (errors, Frame.ERRORS)]
            for pipe in pipes:
                if pipe is not None:
                    pipe.close()
        else:
            ours, theirs = os.openpty()
            try:
                _resize(ours, terminal.rows, terminal.columns)
                self._popen = subprocess.Popen(
                    list(argv),
                    env={**env, "TERM": terminal.kind},
                    cwd=place.folder,
                    stdin=theirs,
                    stdout=theirs,
                    stderr=theirs,
                    start_new_session=True,
                    preexec_fn=before_exec(place.sealed, _take_terminal),
                )
            except BaseException:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            self._input = ours
            self._outputs = [(os.dup(ours), Frame.OUTPUT)]
        watchdog.adopt(self._popen.pid)

    def run(self) -> int:
        """Wait until it has ended and its output is sent. Returns its exit code; 128 + n after signal n."""
        for name, work in (("tunnel", self._receive), ("tunnel-input", self._feed)):
            threading.Thread(target=work, name=name, daemon=True).start()
        pumps = [threading.Thread(target=self._pump, args=output, daemon=True) for output in self._outputs]
        for pump in pumps:
            pump.start()
        code = self._popen.wait()
        self._ended.set()
        self._inputs.put(None)
        for pump in pumps:
            pump.join()
        self._watchdog.disown(self._popen.pid)
        return code if code >= 0 else 128 - code

    def stop(self) -> None:
        """Kill it and all that it has started, jobs of an interactive shell included: each has a group of its own."""
        session = self._popen.pid
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.getsid(int(name)) == session:
                        os.kill(int(name), signal.SIGKILL)

    def _receive(self) -> None:
        try:
            while True:
                frame, data = self._stream.receive()
                if frame is Frame.INPUT:
                    self._inputs.put(data)
                elif frame is Frame.DONE:
                    self._inputs.put(None)
                elif frame is Frame.RESIZE and self._terminal:
                    with contextlib.suppress(ValueError, TypeError, OSError):
                        rows, columns = json.loads(data)
                        _resize(self._outputs[0][0], _size(rows), _size(columns))
                elif frame is Frame.SIGNAL:
                    with contextlib.suppress(ValueError, KeyError, TypeError):
                        self._signal(_SIGNALS[json.loads(data)])
        except Closed:
            self._hang_up()

    def _hang_up(self) -> None:
        """The client has gone. Processes that ignore SIGHUP (nohup, tmux) run on, as after ssh."""
        self._inputs.put(None)
        self._signal(signal.SIGHUP)
        if not self._ended.wait(_HANGUP_GRACE):
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    def _feed(self) -> None:
        broken = False
        try:
            while (data := self._inputs.get()) is not None:
                left = memoryview(data)
                while left and not broken:
                    try:
                        left = left[os.write(self._input, left) :]
                    except OSError:  # it reads no more
                        broken = True
                with contextlib.suppress(Closed):
                    self._stream.took(len(data))
            if self._terminal and not self._ended.is_set():
                with contextlib.suppress(OSError):
                    os.write(self._input, _END_OF_INPUT)
        finally:
            os.close(self._input)

    def _pump(self, output: int, frame: Frame) -> None:
        poll = select.poll()
        poll.register(output, select.POLLIN)
        try:
            while True:
                ended = self._ended.is_set()  # before the look: output may come between a look and the command's end
                if not poll.poll(_QUIET):
                    if ended:
                        return
                    continue
                try:
                    data = os.read(output, PIECE)
                except OSError:  # of a terminal whose last process has ended
                    return
                if not data:
                    return
                self._stream.write(frame, data)
        except Closed:
            return
        finally:
            os.close(output)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _size(told: Any) -> int:
    return max(1, min(int(told), 10_000))
