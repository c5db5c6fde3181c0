"""Keeps the parts of a stack running: starts them in order, restarts those that die, ends them in order.

One thread, as a child dies with the thread that started it.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from tempfile import TemporaryFile
from types import FrameType
from typing import IO

from weft_core.words import describe_exit
from weft_embedded import sign_in
from weft_embedded.ending import END_ORDER
from weft_embedded.fork_server import ForkServer
from weft_embedded.home import EmbeddedError, Home, PartState, State
from weft_embedded.part import Part, PartError, Process
from weft_embedded.processes import ProcessId
from weft_embedded.progress import Patience
from weft_embedded.screen import Screen
from weft_embedded.stack import Stack, exposed_engines
from weft_embedded.waiting import Question, Rest, Words

_TICK = 0.1  # seconds between two checks of everything
_RARELY = 1.0  # the same while all parts run
_HEALTH = 5.0  # seconds between two checks of the health of running parts
_ASKED_LATER = 0.05  # of the time that a part has been starting, between two questions whether it answers
_BACKOFF_FIRST, _BACKOFF_LAST = 0.5, 30.0
_STEADY = 30.0  # a part that ran so long starts with the first backoff again
_TRIES = 4  # starts of a part that never answered before `weft up` gives up
_LONGER = 4  # how often the patience with a part is doubled at most
_NOTE = 5.0  # seconds between two notes on a part that takes its time
_ISOLATION = 5.0  # seconds between two looks at the engines
_DISK_LOW = 256 << 20


class StartFailed(EmbeddedError):
    """The stack never got ready, and why."""


@dataclass
class _Watched:
    part: Part
    known: PartState
    not_before: float = 0.0
    started: float = 0.0
    failures: int = 0  # in a row
    answered: bool = False  # ever
    question: Question | None = None
    patience: Patience | None = None  # while it starts
    words: Words = field(default_factory=Words)


@dataclass
class _Task:
    process: Process
    output: IO[bytes]
    errors: IO[bytes]
    began: float = field(default_factory=time.monotonic)
    words: Words = field(default_factory=Words)
    told: bool = False

    def lines(self, said: IO[bytes]) -> list[str]:
        """What it has written to its output or errors, once it has ended."""
        said.seek(0)
        return said.read().decode(errors="replace").strip().splitlines()


class Supervisor:
    """Runs one stack until a signal ends it.

    Args:
        stack: the parts to run.
        screen: where people see it.
    """

    def __init__(self, stack: Stack, screen: Screen) -> None:
        self._stack = stack
        self._home: Home = stack.home
        self._screen = screen
        self._parts: dict[str, _Watched] = {}
        self._servers: set[str] = set()
        self._services: set[str] | None = None  # once they have been started
        self._tasks: dict[str, _Task] = {}
        self._fork_server: ForkServer | None = None  # while the stack starts
        self._loading = Words()
        self._began = time.monotonic()
        self._stops = 0  # how often it was asked to stop
        self._grace: float | None = None
        self._state = State(supervisor=ProcessId.of_self(), url=stack.public_url, open=stack.open_to_others)
        self._saved: State | None = None
        self._disk_low = False
        self._isolation_due = 0.0

    # --- life ---

    def run(self) -> None:
        """Start everything, keep it running until SIGINT or SIGTERM, end it in order.

        Raises:
            StartFailed: it never got ready; all is ended by then.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._publish()
        self._fork_server = self._stack.start_fork_server()
        servers = self._stack.servers()
        self._servers = {server.name for server in servers}
        for server in reversed(servers):  # S3 first: it takes longest
            self._watch(server)
        try:
            with Rest() as rest:
                while not self._stops:
                    self._tick()
                    rest.sleep(_RARELY if self._is_quiet() else _TICK)
        except StartFailed as failure:
            self._state.error = str(failure)
            raise
        finally:
            self._end()

    def _is_quiet(self) -> bool:
        """Whether nothing is to be done until a part ends or a signal comes."""
        return self._state.ready and all(watched.known.state == "running" for watched in self._parts.values())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1

    def _tick(self) -> None:
        for watched in list(self._parts.values()):
            self._check(watched)
        if not self._state.ready:
            self._go_on()
        elif time.monotonic() > self._isolation_due:
            self._watch_isolation()
        self._watch_disk()
        self._publish()

    def _go_on(self) -> None:
        """The next thing of the start that has become possible."""
        servers = self._servers
        up = {name for name, watched in self._parts.items() if watched.known.state == "running"}
        database = ("postgres" in up or "postgres" not in servers) and self._prepared("database")
        bucket = ("s3" in up and self._has_bucket()) if "s3" in servers else self._prepared("bucket")
        if not database:
            return
        if self._services is None:
            if self._is_loading():
                return
            # They take as long as S3 does, so they start beside it; to both, S3 being away is nothing special.
            services = self._stack.services()
            self._services = {service.name for service in services}
            for service in services:
                service.fork_server = self._fork_server
                self._watch(service)
                service.fork_server = None
            self._end_fork_server()
        if bucket and servers | self._services <= up:
            self._state.ready, self._state.doing = True, ""
            self._screen.line(f"ready after {time.monotonic() - self._began:.1f} s: {self._state.url}")
            self._watch_isolation()
            if self._stack.choice.api:
                self._screen.line(sign_in.invitation(self._stack, logged=not self._screen.is_terminal))

    def _has_bucket(self) -> bool:
        """Whether our own store has the bucket; makes it. Raises StartFailed when the store refuses."""
        try:
            self._stack.make_bucket()
        except PartError as error:
            raise StartFailed(f"the bucket can't be prepared: {error}{self._disk()}") from None
        except OSError:
            return False  # asked again in a moment
        return True

    def _prepared(self, what: str) -> bool:
        """Whether the database or the bucket is prepared; begins it when it isn't under way.

        Raises:
            StartFailed: it can't be done.
        """
        if what not in self._tasks:
            if self._is_loading():
                return False
            self._tasks[what] = self._begin(self._stack.prepare_arguments(what))
        task = self._tasks[what]
        code, waited = task.process.poll(), time.monotonic() - task.began
        if code is None:
            if task.words.due(waited):
                self._say(f"preparing the {what}: {waited:.0f} s …")
        elif code != 0:
            lines = task.lines(task.errors) or [f"ended with exit code {code}"]
            raise StartFailed(f"the {what} can't be prepared: {lines[-1]}{self._disk()}")
        elif not task.told:
            task.told = True
            for line in (f"{what} is prepared", *task.lines(task.output)):
                self._screen.line(line)
        return code == 0

    def _begin(self, command: list[str]) -> _Task:
        """Start a module of ours."""
        output, errors = (TemporaryFile(dir=self._home.run) for _ in range(2))  # noqa: SIM115 - open as long as the task
        environment, (module, *arguments) = self._stack.environment(), command
        process: Process | None = None
        if self._fork_server is not None:
            process = self._fork_server.fork(
                module, arguments, environment, self._home.run, signal.SIGTERM, output.fileno(), errors.fileno()
            )
        process = process or subprocess.Popen(
            [sys.executable, "-m", *command], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )
        return _Task(process, output, errors)

    def _is_loading(self) -> bool:
        if self._fork_server is None or not self._fork_server.is_loading:
            return False
        waited = time.monotonic() - self._began
        if self._loading.due(waited):
            self._say(f"loading the programs: {waited:.0f} s …")
        return True

    def _end_fork_server(self) -> None:
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None

    # --- one part ---

    def _watch(self, part: Part) -> None:
        known = PartState(part.name, log=str(part.log))
        self._state.parts.append(known)
        self._parts[part.name] = _Watched(part, known)
        self._check(self._parts[part.name])

    def _check(self, watched: _Watched) -> None:
        now = time.monotonic()
        part = watched.part
        if part.process is None:
            if now >= watched.not_before:
                self._spawn(watched)
        elif part.pid is None:
            self._fell(watched, how=_how(part.process.wait()))
        else:
            self._ask(watched)

    def _ask(self, watched: _Watched) -> None:
        """Check again and again whether it answers, and act on the last result."""
        part, known, question = watched.part, watched.known, watched.question
        starting = known.state == "starting"
        if question is not None and question.done and question.trouble is None and starting:
            known.state, known.note, watched.answered, watched.patience = "running", "", True, None
            self._screen.line(f"{part.name} is ready (pid {part.pid}, {time.monotonic() - watched.started:.1f} s)")
        elif starting:
            self._wait_for(watched)
        elif question is not None and (question.done or question.age > _STEADY):
            known.note = question.trouble or ""
        if part.pid is not None and (question is None or (question.done and question.age > self._pause(watched))):
            watched.question = Question(part.health)
            if not starting:
                part.trim_log()
                if time.monotonic() - watched.started > _STEADY:
                    watched.failures = 0

    @staticmethod
    def _pause(watched: _Watched) -> float:
        """Seconds between two questions: asking takes CPU time from the part that is starting."""
        if watched.known.state != "starting":
            return _HEALTH
        return min(_ASKED_LATER * (time.monotonic() - watched.started), _HEALTH)

    def _wait_for(self, watched: _Watched) -> None:
        """Wait for a part that makes progress, however long it takes; start a stuck part again."""
        part, patience, question = watched.part, watched.patience, watched.question
        if patience is None or question is None:
            return
        idle, waited = patience.idle, patience.waited
        # Before a part is ended, wait for its answer, too: a part that answers is never ended.
        if idle > patience.limit and (question.done or question.age > patience.limit):
            self._fell(watched, how=f"has done nothing for {idle:.0f} s and does not answer: {question.trouble}")
            return
        gets_on = idle < 2 * _NOTE
        doing = "it is starting up" if gets_on else f"for {idle:.0f} s it has done nothing"
        if waited > _NOTE:
            watched.known.note = f"{waited - waited % _NOTE:.0f} s, {doing}"
        if watched.words.due(waited):
            self._say(f"waiting for {part.label}: {waited:.0f} s, {doing} …")

    def _say(self, word: str, *, bad: bool = False) -> None:
        """Show the reason of a long wait: on the screen and, until the stack is ready, in `weft up --detach`."""
        if not self._state.ready:
            self._state.doing = word
        self._screen.line(word, bad=bad)

    def _spawn(self, watched: _Watched) -> None:
        watched.started = time.monotonic()
        watched.question = watched.patience = None
        try:
            watched.part.spawn()
        except (PartError, OSError) as error:
            self._fell(watched, how=str(error))
            return
        part, known = watched.part, watched.known
        known.state, known.note, known.pid = "starting", "", part.pid
        if part.process is not None:
            limit = part.start_patience * 2 ** min(watched.failures, _LONGER)
            watched.patience, watched.words = Patience(part.process.pid, part.log, limit), Words()

    def _fell(self, watched: _Watched, how: str) -> None:
        """A part died or never got up: try again soon, or give up if the stack never got ready."""
        part, known = watched.part, watched.known
        refused = part.refusal is not None and part.process is not None and part.process.poll() == part.refusal
        said = part.last_lines(1 if refused else 5)
        part.stop(self._is_hurried)
        watched.failures += 1
        if not watched.answered and not self._state.ready and (refused or watched.failures >= _TRIES):
            raise StartFailed(f"{part.name} does not start: {how}{self._disk()}. Its log ({part.log}) ends: {said}")
        wait = min(_BACKOFF_FIRST * 2 ** (watched.failures - 1), _BACKOFF_LAST)
        watched.not_before = time.monotonic() + wait
        known.state, known.pid, known.note = "restarting", None, how
        known.restarts += 1
        self._say(f"{part.name} {how}{self._disk()}; starting it again in {wait:g} s (log: {part.log})", bad=True)

    # --- the disk, the state ---

    def _disk(self) -> str:
        try:
            free = self._home.free_bytes()
        except OSError:
            return ""
        return f" (the disk of {self._home.path} is full: {free >> 20} MiB free)" if free < _DISK_LOW else ""

    def _watch_isolation(self) -> None:
        """Say which engines do not keep jobs apart, until the worker has looked at all of them."""
        known, exposed = exposed_engines(self._stack.database_url(), time.monotonic() - self._began)
        self._isolation_due = math.inf if self._stack.given.engines.keys() <= known else time.monotonic() + _ISOLATION
        if exposed and exposed != self._state.exposed:
            self._state.exposed = exposed
            self._screen.line(exposed, bad=True)

    def _watch_disk(self) -> None:
        full = self._disk()
        if full and not self._disk_low:
            self._screen.line(f"make room{full}", bad=True)
        self._disk_low = bool(full)

    def _publish(self) -> None:
        """Show the state, and save it when it has changed."""
        self._screen.show(self._state, self._stack)
        if self._state == self._saved:
            return
        try:
            self._home.save_state(self._state)
        except OSError as error:
            if self._saved is None:
                raise StartFailed(f"can't write into {self._home.run}: {error.strerror}") from error
            return  # a full disk; said elsewhere
        self._saved = replace(self._state, parts=[replace(part) for part in self._state.parts])

    # --- the end ---

    def _end(self) -> None:
        """Worker first, so that nothing is started any more; learners while API and S3 live; servers last."""
        self._screen.line("stopping (once more: at once)" if not self._state.error else "giving up")
        self._stops = 0
        self._end_fork_server()
        was_ready, self._state.ready, self._state.doing = self._state.ready, False, ""
        for task in self._tasks.values():
            if task.process.poll() is None:
                task.process.kill()
                task.process.wait()
        self._stop_part(END_ORDER[0])
        if was_ready and self._stack.choice.worker and self._stack.has_runs():
            self._interrupt_runs()
        for name in END_ORDER[1:]:
            self._stop_part(name)
        self._publish()

    def _stop_part(self, name: str) -> None:
        watched = self._parts.get(name)
        if watched is None:
            return
        watched.known.state = "stopping"
        self._publish()
        watched.part.stop(self._is_hurried)
        watched.known.state, watched.known.pid, watched.known.note = "stopped", None, ""
        self._screen.line(f"{name} is stopped")
        self._publish()

    def _is_hurried(self) -> bool:
        """Whether somebody asked once more for the end."""
        return self._stops > 0

    def _interrupt_runs(self) -> None:
        """Have the local engine's learners save and end; asked to stop once more, they are killed."""
        grace = self._home.take_grace()
        if grace is None:
            grace = self._stack.given.timings.grace
        self._state.doing = f"ending learners that run here; they have up to {grace:.0f} s to save a checkpoint"
        self._screen.line(self._state.doing)
        command = self._stack.interrupt_command(grace)
        with (self._home.logs / "interrupt.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self._stack.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            while process.poll() is None:
                if self._stops:
                    self._stops = 0
                    process.kill()
                    process.wait()
                    process = subprocess.Popen(
                        self._stack.interrupt_command(0), env=self._stack.environment(), stdout=log, stderr=log
                    )
                self._tick_servers()
                time.sleep(_TICK)
        if process.returncode != 0:
            self._screen.line(
                f"local runs could not be ended in order (log: {self._home.logs}/interrupt.log)", bad=True
            )

    def _tick_servers(self) -> None:
        """Learners that store their results need API and S3, so these are kept up meanwhile."""
        for name, watched in self._parts.items():
            if name != "worker":
                self._check(watched)
        self._publish()


def _how(code: int) -> str:
    return ("ended with " if code >= 0 else "was ") + describe_exit(code)
