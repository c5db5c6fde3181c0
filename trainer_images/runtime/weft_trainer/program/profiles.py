"""Records profiles of the program's processes: traces by PyTorch's profiler, which the processes run themselves (see
``program.profiling``), stacks by py-spy, which reads any Python from outside, and when each process entered its last
collectives, by PyTorch's flight recorder (see ``program.flight_recorder``)."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.program.flight_recorder import entered
from weft_trainer.program.questions import answer, ask, open_regular, waiting
from weft_trainer.program.stacks import OWN_THREADS, find_py_spy, is_python, place_of
from weft_trainer.words import count

MOST_BYTES = 64 * 2**20
"""Of a file, as it is stored."""
_MOST_TRACE_BYTES = 2**30
"""Of a trace before it is packed."""
_MOST_PROCESSES = 16
_MOST_ANSWER = 10_000
_RATE = 50
"""Stacks a second."""
_GRACE = 120.0
"""Seconds for the last step, and for a process to write its trace."""
_LEAST_SECONDS = 3.0
"""Of stacks beside a trace: quick steps would have none."""
_COLLECTIVES = "collectives.txt"
_ANSWER_SECONDS = 30.0
"""For a process to show its flight recorder."""
_PY_SPY_GRACE = 60.0
"""Seconds for py-spy to begin, and to end."""
_POLL = 0.1


@dataclass(frozen=True)
class Wanted:
    """
    Args:
        id: of the profile.
        steps: of an optimizer.
        seconds: after which the recording ends, with however many steps; None: 300 for traces, and 30 for stacks alone.
    """

    id: str
    steps: int
    seconds: float | None

    @property
    def trace_seconds(self) -> float:
        return 300.0 if self.seconds is None else self.seconds

    @property
    def stack_seconds(self) -> float:
        return 30.0 if self.seconds is None else self.seconds


@dataclass
class Recording:
    """The files of a profile, by their names, and in words what is missing."""

    files: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


class _Part:
    """The part of a process in a recording."""

    def __init__(self, process: psutil.Process) -> None:
        self.process = process
        self.rank = place_of(process)["rank"]
        self.answered = False
        self.files: dict[str, Path] = {}
        """By the ends of their names."""
        self.missing: list[str] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lives(self) -> bool:
        try:
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


class Profiler:
    """Records one profile at a time.

    Args:
        folder: in which the processes take requests.
        recorders: the folder in which they show their flight recorders.
        scratch: a folder for the files.
        watchdog: knows the agent's own processes.
    """

    def __init__(self, folder: Path, recorders: Path, scratch: Path, watchdog: Watchdog) -> None:
        self._folder = folder
        self._recorders = recorders
        self._scratch = scratch
        self._watchdog = watchdog

    def record(self, wanted: Wanted, say: Callable[[str], None], over: threading.Event) -> Recording:
        """``say`` gets a line about the recording. It ends early when ``over`` is set."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        parts = self._parts()
        if not parts:
            return Recording(missing=["no Python runs in this learner"])
        self._take_collectives(parts)  # first: PyTorch's profiler slows steps down
        able = waiting(self._folder)
        if train := [part for part in parts if part.pid in able]:
            say(f"PyTorch's profiler records {count(wanted.steps, 'step')} of {_count(train)}")
            with self._spying(train, None, over):
                least = time.monotonic() + _LEAST_SECONDS
                asked = ask(self._folder, lambda pid: self._request(wanted, pid), [part.pid for part in train])
                for part in train:
                    if part.pid not in asked:
                        part.answered = True
                        part.missing.append("no trace: an earlier recording in it has not ended")
                self._take_traces(wanted, train, over)
                over.wait(max(0.0, least - time.monotonic()))
            self._take_collectives(train)
            return _named(train)
        say(f"py-spy records {_count(parts)} for {wanted.stack_seconds:g} s")
        with self._spying(parts, wanted.stack_seconds, over) as spies:
            _wait(lambda: _ended(spies), over, wanted.stack_seconds + _PY_SPY_GRACE)
        self._take_collectives(parts)
        return _named(parts)

    def _parts(self) -> list[_Part]:
        """The processes with Python below the agent, the busiest first."""
        found: list[tuple[float, _Part]] = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.pid not in self._watchdog.own and is_python(process):
                    found.append((sum(process.cpu_times()[:2]), _Part(process)))
        found.sort(key=lambda entry: -entry[0])
        return [part for _, part in found[:_MOST_PROCESSES]]

    def _take_collectives(self, parts: list[_Part]) -> None:
        """Of those that have shown none yet: before its first step, a program has none."""
        parts = [part for part in parts if _COLLECTIVES not in part.files]
        asked = ask(self._recorders, only=[part.pid for part in parts])
        lines = entered(self._recorders, asked, _ANSWER_SECONDS)
        for part in parts:
            if part.pid in lines:
                target = self._scratch / f"{part.pid}.{_COLLECTIVES}"
                target.write_text(lines[part.pid])
                part.files[_COLLECTIVES] = target

    # --- traces ---

    def _request(self, wanted: Wanted, pid: int) -> bytes:
        request = {"id": wanted.id, "steps": wanted.steps, "seconds": wanted.trace_seconds}
        return json.dumps({**request, "trace": str(self._trace(pid))}).encode()

    def _trace(self, pid: int) -> Path:
        return self._folder / f"{pid}.trace"

    def _take_traces(self, wanted: Wanted, parts: list[_Part], over: threading.Event) -> None:
        def complete() -> bool:
            for part in parts:
                if not part.answered:
                    ended = not part.lives
                    text = answer(self._folder, part.pid, _MOST_ANSWER)
                    if text is not None or ended:
                        part.answered = True
                        self._take_trace(wanted, part, text)
            return all(part.answered for part in parts)

        _wait(complete, over, wanted.trace_seconds + _GRACE)
        for part in parts:
            if not part.answered:
                part.missing.append("no trace: it does not answer")

    def _take_trace(self, wanted: Wanted, part: _Part, text: bytes | None) -> None:
        try:
            if text is None:
                raise ValueError("it has ended")
            told = json.loads(text)
            if told["id"] != wanted.id:
                raise ValueError("it has answered an earlier request")
            if "error" in told:
                raise ValueError(str(told["error"])[:500])
            if told["rank"] is not None:
                part.rank = int(told["rank"])
            part.files["trace.json.gz"] = self._packed(part.pid)
        except (OSError, ValueError, KeyError, TypeError) as error:
            part.missing.append(f"no trace: {error}")

    def _packed(self, pid: int) -> Path:
        """Raises: OSError, ValueError."""
        trace, target = self._trace(pid), self._scratch / f"{pid}.trace.json.gz"
        descriptor = open_regular(trace)
        if descriptor is None:
            raise ValueError("it is no regular file")
        with open(descriptor, "rb") as file:
            trace.unlink()
            if os.fstat(descriptor).st_size > _MOST_TRACE_BYTES:
                raise ValueError("it has more than 1 GiB; record fewer steps")
            with gzip.open(target, "wb", compresslevel=5) as packed:
                shutil.copyfileobj(file, packed)
        if target.stat().st_size > MOST_BYTES:
            raise ValueError("it has more than 64 MiB when packed; record fewer steps")
        return target

    # --- stacks ---

    @contextlib.contextmanager
    def _spying(
        self, parts: list[_Part], seconds: float | None, over: threading.Event
    ) -> Iterator[list[subprocess.Popen[bytes]]]:
        """py-spy at work on these processes, for so long or until the context is left; then their stacks are
        complete."""
        program = find_py_spy()
        if program is None:
            for part in parts:
                part.missing.append("no stacks: this environment has no py-spy (pip install py-spy)")
            yield []
            return
        spies = [self._spy(program, part.pid, seconds) for part in parts]
        try:
            _wait(lambda: _ended(spies) or all(self._reads(part.pid) for part in parts), over, _PY_SPY_GRACE)
            yield spies
        finally:
            for spy in spies:
                spy.send_signal(signal.SIGINT)
            for part, spy in zip(parts, spies, strict=True):
                self._take_stacks(part, spy)

    def _spy(self, program: str, pid: int, seconds: float | None) -> subprocess.Popen[bytes]:
        # Without stopping the process, and with the threads that wait: what a program waits for matters most.
        options = ["--nonblocking", "--idle", "--threads", "--format", "raw", "--rate", str(_RATE)]
        if seconds is not None:
            options += ["--duration", str(math.ceil(seconds))]
        with self._told(pid).open("wb") as told:
            spy = subprocess.Popen(
                [program, "record", *options, "--output", str(self._raw(pid)), "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watchdog.adopt(spy.pid)
        return spy

    def _reads(self, pid: int) -> bool:
        return b"Sampling process" in self._told(pid).read_bytes()

    def _told(self, pid: int) -> Path:
        """What py-spy says."""
        return self._scratch / f"{pid}.py-spy"

    def _raw(self, pid: int) -> Path:
        return self._scratch / f"{pid}.raw"

    def _take_stacks(self, part: _Part, spy: subprocess.Popen[bytes]) -> None:
        try:
            spy.wait(_PY_SPY_GRACE)
        except subprocess.TimeoutExpired:
            spy.kill()
            spy.wait()
        self._watchdog.disown(spy.pid)
        raw, target = self._raw(part.pid), self._scratch / f"{part.pid}.stacks.txt"
        lines = raw.read_text(errors="replace").splitlines(keepends=True) if raw.exists() else []
        # Without the module threading, threads have no names.
        main = f"thread ({part.pid})"
        lines = [re.sub(f"^{re.escape(main)};", f"{main}: MainThread;", line) for line in lines]
        kept = [line for line in lines if not line.partition(";")[0].endswith(OWN_THREADS)]
        if not kept:
            said = " ".join(self._told(part.pid).read_text(errors="replace").split())[-300:]
            part.missing.append(f"no stacks: py-spy has read none ({said or f'exit code {spy.returncode}'})")
            return
        target.write_text("".join(kept))
        if target.stat().st_size > MOST_BYTES:
            part.missing.append("no stacks: they have more than 64 MiB")
        else:
            part.files["stacks.txt"] = target


def _ended(spies: list[subprocess.Popen[bytes]]) -> bool:
    return all(spy.poll() is not None for spy in spies)


def _count(parts: list[_Part]) -> str:
    return "1 process" if len(parts) == 1 else f"{len(parts)} processes"


def _named(parts: list[_Part]) -> Recording:
    """The files of all processes, under `rank-3`, or `process-1` without a rank."""
    found = Recording()
    names: set[str] = set()
    nameless = 0
    for part in parts:
        name = f"rank-{part.rank}"
        # Helpers of a rank have its environment, too; the busiest process comes first.
        if part.rank is None or name in names:
            nameless += 1
            name = f"process-{nameless}"
        names.add(name)
        found.files |= {f"{name}.{end}": path for end, path in part.files.items()}
        found.missing += [f"{name} has {text}" for text in part.missing]
    return found


def _wait(condition: Callable[[], bool], over: threading.Event, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end and not over.wait(_POLL):
        pass
