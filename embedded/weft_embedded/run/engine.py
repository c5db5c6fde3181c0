"""The local engine as a process: ``python -m weft_workers.engines.local attached``, whose news are lines."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft_core.launch import LaunchSpec


def home() -> Path:
    """The folder of environments, the data cache and runs. It is the home of `weft up`, if there is one, so that both
    share them and neither gives the other's GPUs away; else it is a cache folder."""
    theirs = Path(os.environ.get("WEFT_HOME") or "~/.weft").expanduser().absolute()
    return theirs if (theirs / "version").exists() else Path("~/.cache/weft").expanduser()


class EngineProcess:
    """Starts the gang of ``spec``. It calls ``tell`` with each piece of its news, from a thread of its own; the last
    one is ``{"gone": true}``, ``{"refused": why}`` or ``{"broken": why}``."""

    over = False
    """Whether the last piece of news has been passed on."""

    def __init__(self, spec: LaunchSpec, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self.broken = False
        """Whether it ended without having ended its run."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weft_workers.engines.local", "attached", "--home", str(home())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # a terminal's Ctrl-C is not for it
        )
        self._send({"launch": dataclasses.asdict(spec)})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop(self, grace: float) -> None:
        """SIGTERM now, SIGKILL after ``grace`` seconds."""
        self._send({"stop": grace})

    def close(self) -> None:
        """The end of its input: all remaining processes are killed."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._reader.join()
        self._errors.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, and its last news is on the way
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        last: dict[str, Any] = {}
        for line in self._process.stdout:
            last = json.loads(line)
            self.over = bool(last.keys() & {"gone", "refused"})
            self._tell(last)
        self._process.wait()
        if not self.over:
            self.over = self.broken = True
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            self._tell({"broken": said[-1] if said else f"exit code {self._process.returncode}"})
