"""The user's processes: each starts a process group of its own, which is ended and reaped as a whole."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from weft_trainer.log.lines import Line, LineAssembler
from weft_trainer.log.output import Output, write_bytes
from weft_trainer.machine.prctl import tracing_consent
from weft_trainer.machine.sealing import NOTHING, Sealed, sealer
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.program.plan import Process

_CHUNK = 256 * 1024
_F_SETPIPE_SZ = 1031


class Child:
    """A started process with all that it starts. Its standard output and error go to ``output``.

    Args:
        ring: called when the process has ended.
        sealed: folders that it can't write.
    """

    def __init__(
        self,
        process: Process,
        env: Mapping[str, str],
        folder: Path,
        output: Output,
        ring: Callable[[], None],
        watchdog: Watchdog,
        sealed: Sealed = NOTHING,
    ) -> None:
        self._output = output
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
            preexec_fn=before_exec(sealed),
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
        # The agent reaps the processes that its end has orphaned.
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
        """Wait a moment for the last output of an ended process."""
        self._reader.join(timeout)

    def finish(self, timeout: float = 2.0) -> None:
        """After the group's end: read the rest of the pipe. A process that escaped from the group may hold the pipe
        open for ever, hence the timeout."""
        self._watchdog.release(self.pid)
        self._reader.join(timeout)

    def _wait(self) -> None:
        code = self._popen.wait()
        self.ended_at = time.monotonic()
        self.code = code
        self._ring()

    def _read(self, label: str) -> None:
        assert self._popen.stdout is not None
        pipe = self._popen.stdout.fileno()
        assembler = LineAssembler(label)
        _widen(pipe)
        # One buffer for all reads: a new one for each, which shrinks to what came, leaves holes in the agent's memory.
        # Of an anonymous map, only the pages that a read has filled take memory.
        with mmap.mmap(-1, _CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as buffer:
            while size := os.readv(pipe, [buffer]):
                self._note_last(write_bytes(self._output, assembler, buffer[:size]))
        lines = assembler.close()
        self._note_last(lines)
        self._output.write(lines)

    def _note_last(self, lines: Sequence[Line]) -> None:
        if lines:
            self.last_line = lines[-1].text


def before_exec(sealed: Sealed, *first: Callable[[], object]) -> Callable[[], object] | None:
    """Run by a process before its exec: it takes the place of the user's program, after the steps ``first``. None:
    there is nothing to be done."""
    steps = [step for step in (*first, tracing_consent(), sealer(sealed)) if step is not None]
    return (lambda: [step() for step in steps]) if steps else None


def _widen(pipe: int) -> None:
    """Give a program that writes much at once room to go on while the agent reads."""
    with contextlib.suppress(OSError):  # not Linux, or the user has very many pipes
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _CHUNK)


def kill_strays(spare: Collection[int]) -> None:
    """Kill processes that have escaped from their group (a daemon's double fork and setsid) and are children of the
    agent by now; not the processes ``spare``, nor their descendants."""
    import psutil  # 20 ms that no start should wait for

    left = []
    for child in psutil.Process().children():
        if child.pid not in spare:
            with contextlib.suppress(psutil.Error):
                left += [child, *child.children(recursive=True)]
    for stray in left:
        with contextlib.suppress(psutil.Error):
            stray.kill()
    psutil.wait_procs(left, timeout=2)
