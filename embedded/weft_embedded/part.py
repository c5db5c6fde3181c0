"""A part of the stack: one process that is started, watched and ended, together with all processes that it leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from weft_embedded import guard
from weft_embedded.fork_server import Child
from weft_embedded.home import EmbeddedError
from weft_embedded.processes import ProcessId, session_members
from weft_embedded.progress import Patience

Process = subprocess.Popen[bytes] | Child
_MARK = "WEFT_PART"
_LOG_LIMIT = 32 << 20
_STARTS = 3


def marked(environment: Mapping[str, str], run: Path) -> dict[str, str]:
    """An environment with the mark by which the processes of a stack are found."""
    return {**environment, _MARK: str(run)}


class PartError(EmbeddedError):
    """A part can't start. The message contains the end of its log."""


class Part(ABC):
    """One process of the stack. It runs in a session of its own and dies with the thread that spawned it.

    Args:
        run: folder for its pid file.
        log: file for its output.
    """

    name: str
    label: str
    """Its name in a sentence."""
    stop_signal: int = signal.SIGTERM
    stop_grace: float = 10.0
    """Seconds for which it may do nothing after ``stop_signal``; then SIGKILL."""
    start_patience: float = 60.0
    """Seconds for which it may do nothing at all (see :class:`Patience`) while it starts and does not answer yet."""
    refusal: int | None = None
    """Its exit code when another start would not change anything."""
    way: str = "same"
    """The way in which it runs as its user; see :mod:`weft_embedded.guard`."""

    def __init__(self, run: Path, log: Path) -> None:
        self.run = run
        self.log = log
        self.process: Process | None = None
        self.started = 0.0  # by the monotonic clock

    # --- what a part says of itself ---

    @abstractmethod
    def command(self) -> list[str]:
        """Program (absolute path) and arguments."""

    @abstractmethod
    def health(self) -> str | None:
        """None when it answers, else why not; may be asked on another thread, and may take half a minute."""

    def environment(self) -> dict[str, str]:
        """The environment of its process."""
        return dict(os.environ)

    def folder(self) -> Path:
        """Its working directory."""
        return self.run

    def prepare(self) -> None:  # noqa: B027 - a hook
        """Prepare the start of the process. Nothing of an earlier process is left at this time."""

    # --- its life ---

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def _pid_file(self) -> Path:
        return self.run / f"{self.name}.pid"

    def start(self) -> None:
        """Start it and wait until it answers, for as long as it gets on.

        A part that ends at once is started up to three times: another program may have taken a port since the part
        found it free, and ``prepare`` then chooses another port.

        Raises:
            PartError: it ended at once, or is stuck.
        """
        for _ in range(_STARTS):
            if self._comes_up():
                return
        raise PartError(f"{self.name} ended at once: {self.last_lines()}")

    def _comes_up(self) -> bool:
        """Whether a new process answers; False if it ended at once. Raises PartError."""
        self.spawn()
        assert self.process is not None
        patience = Patience(self.process.pid, self.log, self.start_patience)
        while (trouble := self.health()) is not None:
            if self.pid is None:
                return False
            if patience.is_over:
                self.stop()
                raise PartError(f"{self.name} does not answer: {trouble} (log: {self.log})")
            time.sleep(0.02)
        return True

    def spawn(self) -> None:
        """Start the process, after ending what an earlier one left. Call it from a thread that lives on."""
        self.end_leftover()
        self.prepare()
        self._rotate_log()
        self.started = time.monotonic()
        with self.log.open("ab") as output:
            self.process = self.begin(marked(self.environment(), self.run), output)
        identity = ProcessId.of(self.process.pid)
        if identity is not None:
            identity.save(self._pid_file)

    def begin(self, environment: Mapping[str, str], output: IO[bytes]) -> Process:
        """Start its process, in a session of its own."""
        return subprocess.Popen(
            self.guarded(self.command(), self.stop_signal),
            env=environment,
            cwd=self.folder(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def guarded(self, command: list[str], death_signal: int) -> list[str]:
        """A command that runs as this part does, and gets the signal when this process dies."""
        tied = [guard.__file__, str(os.getpid()), str(int(death_signal)), self.way]
        return [sys.executable, "-I", "-S", *tied, *command]

    def stop(self, hurried: Callable[[], bool] = lambda: False) -> None:
        """End it in order, kill it when it gets on no more, and end whatever is left of its session.

        Args:
            hurried: whether somebody asked for the end once more: then its grace is up though it may still get on.
        """
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(self.stop_signal)
            patience = Patience(self.process.pid, self.log, self.stop_grace)
            while self.process.poll() is None:
                if patience.is_over or (hurried() and patience.waited > self.stop_grace):
                    self.process.kill()
                    self.process.wait()
                time.sleep(0.01)
            self._end_session(self.process.pid)
            self.process = None
            self._pid_file.unlink(missing_ok=True)
        self.cleanup()

    def cleanup(self) -> None:  # noqa: B027 - a hook
        """Remove what its process leaves on the disk, once it is gone."""

    def end_leftover(self) -> bool:
        """End the process that an earlier supervisor started, and its children; whether there were any."""
        left = ProcessId.load(self._pid_file)
        if left is None:
            return False
        lived = left.alive()
        left.end(self.stop_signal, self.stop_grace)
        lived = self._end_session(left.pid) or lived
        self._pid_file.unlink(missing_ok=True)
        self.cleanup()
        return lived

    def _end_session(self, session: int) -> bool:
        members = list(session_members(session, f"{_MARK}={self.run}"))
        for member in members:
            member.end(signal.SIGKILL, 0)
        return bool(members)

    # --- its log ---

    def _rotate_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT:
                self.log.replace(self.log.with_suffix(".log.1"))

    def trim_log(self) -> None:
        """Move a log that has grown long aside while the process writes on (it appends, so it goes on at the start)."""
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > 2 * _LOG_LIMIT:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)

    def last_lines(self, count: int = 5) -> str:
        """The end of its log, on one line."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 4096))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return "no log"
        return " | ".join(line.strip() for line in lines[-count:] if line.strip()) or "its log is empty"
