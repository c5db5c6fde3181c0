"""One run that is tied to its caller, for `weft run`: no worker, no database.

    python -m weft_workers.engines.local attached --home HOME

The first line on standard input describes the run, as a JSON object: ``launch`` is a launch spec's fields. Later lines
are ``{"stop": SECONDS}``, the grace. The end of standard input means that the caller is gone: the run is killed.
Each line on standard output is a piece of news, a JSON object with one of the keys

``refused``   why the run can't ever be here, with FfDL's ``code``; nothing was started
``note``      a hint for the user
``folders``   the learners' working folders, by rank; they appear when the learners start
``seen``      the run as the engine sees it: an Observation's fields, with a list of learners; sent when it changes
``unreachable``  why the engine can't be observed just now (a full disk, say)
``gone``      true: nothing of the run is left; always the last one, but for ``refused``
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from weft_core.engine import EngineUnreachable, LaunchRefused
from weft_core.engine_settings import LocalSettings
from weft_core.launch import LaunchSpec, Resources
from weft_workers.engines.local.engine import LocalEngine
from weft_workers.engines.local.machine import Machine
from weft_workers.environments import EnvironmentBuilder

_EVERY = 0.1  # seconds
_BROKEN_OFF = timedelta(0)


def attached(home: Path) -> int:
    """Serve one run from standard input; returns the process's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the caller, which then sends a stop
    asked = _Lines()
    first = asked.next(None)
    if first is None:
        return 0
    spec = _read(first)
    settings, note = _large_enough(spec)
    if note:
        _tell(note=note)
    engine = LocalEngine("run", settings, home, EnvironmentBuilder(EnvironmentBuilder.root_of(home)), spec.installation)
    try:
        engine.launch(spec)
    except (LaunchRefused, EngineUnreachable) as error:
        _tell(refused=str(error), code=error.code if isinstance(error, LaunchRefused) else None)
        return 1
    _tell(folders=[str(folder) for folder in engine.folders(spec)])
    _Watch(engine, spec.run_name).until_gone(asked)
    _tell(gone=True)
    return 0


@dataclass
class _Watch:
    """Reports the events of a run, and stops it on request."""

    engine: LocalEngine
    run_name: str
    told: dict[str, Any] = field(default_factory=dict)

    def until_gone(self, asked: _Lines) -> None:
        while True:
            try:
                seen = self.engine.observe().get(self.run_name)
            except EngineUnreachable as error:
                self._tell(unreachable=str(error))
            else:
                if seen is None:
                    return
                self._tell(seen={**asdict(seen), "learners": [asdict(learner) for learner in seen.learners.values()]})
            for line in asked.pending(_EVERY):
                self.engine.stop(
                    self.run_name, timedelta(seconds=json.loads(line)["stop"]) if line is not None else _BROKEN_OFF
                )

    def _tell(self, **news: Any) -> None:
        if news != self.told:
            self.told = news
            _tell(**news)


class _Lines:
    """Standard input, line by line, with a time limit; not ``sys.stdin``, whose buffer a selector can't see."""

    def __init__(self) -> None:
        self._buffer = b""
        self._open = True
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ)

    def next(self, timeout: float | None) -> bytes | None:
        """The next line; None: there will be none any more. Raises TimeoutError."""
        while b"\n" not in self._buffer:
            if not self._open:
                return None
            if not self._selector.select(timeout):
                raise TimeoutError
            data = os.read(0, 1 << 16)
            self._open = bool(data)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def pending(self, timeout: float) -> list[bytes | None]:
        """The line that comes within ``timeout`` seconds, if any; [None] once, at the end of the input."""
        if not self._open:
            self._selector.select(timeout)
            return []
        try:
            line = self.next(timeout)
        except TimeoutError:
            return []
        if line is None:
            self._selector.unregister(0)
        return [line]


def _read(line: bytes) -> LaunchSpec:
    fields: dict[str, Any] = json.loads(line)["launch"]
    return LaunchSpec(**fields | {"resources": Resources(**fields["resources"])})


def _large_enough(spec: LaunchSpec) -> tuple[LocalSettings, str]:
    """A gang for larger machines runs all the same: its learners share the CPUs and the memory, even if they ask for
    more than there is. (GPUs can't be shared.)"""
    settings = LocalSettings(isolation="none")  # it is the user's own program, on the user's own machine
    machine = Machine.of(settings)
    cpus, memory = spec.resources.cpus * spec.learners, spec.resources.memory * spec.learners
    short = []
    if cpus > machine.cpus:
        settings = settings.model_copy(update={"cpus": cpus})
        short.append(f"{cpus:g} CPUs, {machine.cpus:g} are there")
    if memory > machine.memory:
        settings = settings.model_copy(update={"memory": memory})
        short.append(f"{memory / (1 << 30):.1f} GiB of memory, {machine.memory / (1 << 30):.1f} are there")
    return settings, f"asked for are {' and '.join(short)}: the learners share what this machine has" if short else ""


def _tell(**news: Any) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()
