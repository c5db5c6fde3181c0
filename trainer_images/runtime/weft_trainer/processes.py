"""The user's processes: each starts a process group of its own, which is ended and reaped as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from weft_trainer.launchers.base import Process
from weft_trainer.lines import Line, LineAssembler
from weft_trainer.watchdog import Watchdog

_CHUNK = 256 * 1024
_F_SETPIPE_SZ = 1031
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_PR_SET_PTRACER = 0x59616D61


def become_reaper() -> None:
    """Orphans of the user's processes become children of the agent, so that none is lost from sight."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_environment() -> None:
    """Keep other processes of the same user (the training code) from reading the token in /proc/<agent>/environ."""
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, which forked it, dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def tracing_consent() -> Callable[[], object] | None:
    """Run by a process before its exec, lets the agent and its descendants (py-spy) read it where the kernel's Yama
    asks for that; None where it does not. To be had before the fork, after which little is safe."""
    try:
        restricted = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip() == "1"
        prctl, agent = ctypes.CDLL(None).prctl, os.getpid()
    except (OSError, AttributeError):
        return None
    return (lambda: prctl(_PR_SET_PTRACER, agent, 0, 0, 0)) if restricted else None


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # Linux only; elsewhere the learner runs without
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Flood(Protocol):
    """Who may say that of the output no lines are to be made just now, and takes it as it is."""

    @property
    def flooded(self) -> bool: ...

    def leave_out(self, raw: bytes) -> None: ...


class Child:
    """A started process with all that it starts; its output goes to ``sink`` line by line."""

    def __init__(
        self,
        process: Process,
        env: Mapping[str, str],
        folder: Path,
        sink: Callable[[Sequence[Line]], None],
        ring: Callable[[], None],
        watchdog: Watchdog,
        flood: Flood | None = None,
    ) -> None:
        self._flood = flood
        self._sink = sink
        self._ring = ring
        self._watchdog = watchdog
        self._popen = subprocess.Popen(
            list(process.argv),
            env={**env, **process.env},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            preexec_fn=tracing_consent(),
        )
        self.pid = self._popen.pid
        self.code: int | None = None
        """None while it runs; negative: killed by that signal."""
        self.ended_at = 0.0
        self.last_line = ""
        watchdog.guard(self.pid)
        self._reader = threading.Thread(target=self._read, args=(process.label,), name="output", daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, name="wait", daemon=True).start()

    def signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    @property
    def group_alive(self) -> bool:
        """Whether anything of the group is left."""
        if self.code is None:
            return True
        # What its end has orphaned is the agent's to reap.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def drain(self, timeout: float) -> None:
        """Wait a moment for what an ended process has printed last."""
        self._reader.join(timeout)

    def finish(self, timeout: float = 2.0) -> None:
        """After the group's end: read what is left in the pipe. A process that escaped from the group may hold the
        pipe open for ever, hence the timeout."""
        self._watchdog.release(self.pid)
        self._reader.join(timeout)

    def _wait(self) -> None:
        code = self._popen.wait()
        self.ended_at = time.monotonic()
        self.code = code
        self._ring()

    def _read(self, label: str) -> None:
        assert self._popen.stdout is not None
        output = self._popen.stdout.fileno()
        assembler = LineAssembler(label)
        _widen(output)
        while data := os.read(output, _CHUNK):
            if self._flood is not None and self._flood.flooded:
                lines, rest = assembler.skip(data)
                self._take(lines)
                self._flood.leave_out(rest)
            else:
                self._take(assembler.feed(data))
        self._take(assembler.close())

    def _take(self, lines: Sequence[Line]) -> None:
        if lines:
            self.last_line = lines[-1].text
        self._sink(lines)


def _widen(pipe: int) -> None:
    """Give a program that writes much at once room to go on while the agent reads."""
    with contextlib.suppress(OSError):  # not Linux, or the user has very many pipes
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _CHUNK)


def kill_strays(spare: Collection[int]) -> None:
    """Kill what has escaped from its group (a daemon's double fork and setsid) and is a child of the agent by now;
    not the processes ``spare``, nor what they have started."""
    import psutil  # 20 ms that no start should wait for

    left = []
    for child in psutil.Process().children():
        if child.pid not in spare:
            with contextlib.suppress(psutil.Error):
                left += [child, *child.children(recursive=True)]
    for one in left:
        with contextlib.suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(left, timeout=2)
