"""The supervisor of one learner: starts its agent, ends everything that the agent leaves behind, and records how it
ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from weft_core import processes
from weft_core.words import describe_exit, size
from weft_workers.supervision import agents, cgroups, sandbox, spawn
from weft_workers.supervision.run import Exit, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1})
"""Blocked in all supervisors, and waited for: none gets lost between a check and a wait."""
UNSENT_SECONDS = 10.0
"""How long a learner's end may be put off while the unsent lines of its killed agent are sent."""
_CHECK = 5.0  # seconds after which it checks everything even if no signal came


class LearnerSupervisor:
    """Runs in a process of its own, a child of the gang's supervisor ``gang``. ``shared``: the namespaces of the gang,
    for a learner in a sandbox."""

    def __init__(
        self, run: RunFolder, rank: int, gang: int, spec: Mapping[str, Any], shared: sandbox.Shared | None = None
    ) -> None:
        self._run = run
        self._rank = rank
        self._gang = gang
        self._spec = spec
        self._shared = shared
        self._agent = 0
        self._group: cgroups.MemoryGroup | None = None
        self._machine_kills = cgroups.machine_oom_kills()

    def supervise(self) -> None:
        """From the agent's start to its exit file."""
        processes.die_with_parent(self._gang, signal.SIGTERM)
        processes.adopt_orphans()
        self._run.write_supervisor(self._rank)
        self._start()
        self._run.write_supervisor(self._rank, self._agent)
        status, note = self._wait()
        processes.end_descendants(others=self._group.pids if self._group else tuple)
        if os.WIFSIGNALED(status) and self._run.has_unsent(self._rank):
            send_unsent(self._run, {self._rank: self._spec}, lambda: UNSENT_SECONDS)
        self._write_exit(self._exit(os.waitstatus_to_exitcode(status), note))
        if self._group:
            self._group.remove()

    # --- start ---

    def _start(self) -> None:
        self._group = cgroups.MemoryGroup.make(self._run.group_name(self._rank), self._spec["memory"])
        go_read, go_write = os.pipe()
        supervisor = os.getpid()
        view = self._spec["view"]
        self._agent = os.fork() if view is None else sandbox.fork(self._shared)
        if self._agent == 0:
            os.close(go_write)
            _become_agent(self._run, self._rank, self._spec, supervisor, go_read, view and sandbox.Visible(**view))
        os.close(go_read)
        # It waits outside until it is in its group, as all it starts shall be born there.
        if self._group and not self._group.enter(self._agent):
            self._group.remove()
            self._group = None
        os.write(go_write, b"!")
        os.close(go_write)

    # --- until its end ---

    def _wait(self) -> tuple[int, str]:
        """The agent's wait status, and a note when it was not the agent's own doing."""
        told, shutdown = False, False
        while True:
            ended = processes.reap()
            # The gang's supervisor has SIGTERM as well, and may be slower than the agent's end. (From the kernel it is
            # the word that the gang's supervisor is dead.)
            if (shutdown or signal.SIGTERM in signal.sigpending()) and os.getppid() == self._gang:
                self._run.shut_down()
            if self._agent in ended:
                return ended[self._agent], ""
            if os.getppid() != self._gang:
                return self._kill(), "the supervisor of its run was killed"
            pause = _CHECK
            if stop := self._run.stop_request():
                if not told:
                    os.kill(self._agent, signal.SIGTERM)  # ours to reap, so the pid is still the agent's
                    told = True
                left = stop.deadline - time.monotonic()
                if left <= 0:
                    return self._kill(), "killed when its grace ran out"
                pause = min(left, _CHECK)
            received = signal.sigtimedwait(SIGNALS, pause)
            shutdown = received is not None and received.si_signo == signal.SIGTERM

    def _kill(self) -> int:
        ended = processes.end_descendants(others=self._group.pids if self._group else tuple)
        return ended[self._agent]

    # --- how it ended ---

    def _exit(self, code: int, note: str) -> Exit:
        interrupted = code != 0 and self._run.interrupted()
        if self._group and self._group.oom_kills():
            what = "killed" if code else "a process of it was killed"
            return Exit(
                code, f"{what} by the kernel: out of memory (limit {size(self._spec['memory'])})", True, interrupted
            )
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        if note or code == 0:
            return Exit(code, note, False, interrupted)
        if killed and not self._group and cgroups.machine_oom_kills() > self._machine_kills:
            return Exit(code, "killed by signal 9 (SIGKILL), probably out of memory", True, interrupted)
        if code < 0:
            return Exit(code, describe_exit(code), False, interrupted)
        return Exit(code, f"{describe_exit(code)}{self._last_line()}", False, interrupted)

    def _last_line(self) -> str:
        """The last line that the agent itself printed, for example about a failed import."""
        with suppress(OSError):
            with self._run.agent_log(self._rank).open("rb") as log:
                log.seek(max(os.fstat(log.fileno()).st_size - 4096, 0))
                lines = log.read().decode(errors="replace").split("\n")
            said = [line.strip() for line in lines if line.strip()]
            if said:
                token = self._spec["environment"].get("WEFT_ATTEMPT_TOKEN") or "\0"
                return f": {said[-1].replace(token, '<token>')[-300:]}"
        return ""

    def _write_exit(self, how: Exit) -> None:
        for _ in range(30):
            try:
                self._run.write_exit(self._rank, how)
            except OSError as error:  # a full disk may have room again when the others are gone
                print(f"can't write the exit of learner {self._rank}: {error}", file=sys.stderr, flush=True)
                time.sleep(1)
            else:
                return


def send_unsent(run: RunFolder, learners: Mapping[int, Mapping[str, Any]], seconds: Callable[[], float]) -> None:
    """Start another agent for each learner whose agent was killed. It sends what is left in the learner's spools.

    The calling process has no other children. Lines that the API does not take in time are lost.

    Args:
        learners: as the run's spec has them, by rank.
        seconds: how long all this may take; asked again every second.
    """
    supervisor = os.getpid()
    senders = set()
    for rank, learner in learners.items():
        pid = os.fork()
        if pid == 0:
            environment = {**learner["environment"], "WEFT_LEFTOVERS": "1"}
            _become_agent(run, rank, {**learner, "environment": environment}, supervisor)
        senders.add(pid)
    begun = time.monotonic()
    while (senders := senders - processes.reap().keys()) and (left := begun + seconds() - time.monotonic()) > 0:
        signal.sigtimedwait(SIGNALS, min(left, 1.0))
    processes.end_descendants()


def _become_agent(
    run: RunFolder,
    rank: int,
    learner: Mapping[str, Any],
    supervisor: int,
    go: int | None = None,
    view: sandbox.Visible | None = None,
) -> NoReturn:
    """Turn this process, which ``supervisor`` forked, into a learner's agent once something can be read from ``go``.

    Args:
        view: the part of the machine that it sees, in namespaces of its own; None: all of it.
    """
    try:
        processes.die_with_parent(supervisor)
        os.setsid()
        if go is not None and not os.read(go, 1):
            os._exit(127)  # the supervisor has died
        output = os.open(run.agent_log(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        with suppress(OSError):  # the machine's own servers shall outlive a learner that eats its memory
            Path("/proc/self/oom_score_adj").write_text("500")
        if cores := learner["cores"]:
            with suppress(OSError):  # a core that has gone offline is no reason not to run
                os.sched_setaffinity(0, cores)
        if view is not None:
            os.makedirs(view.tmp, mode=0o700, exist_ok=True)
            sandbox.enter(view)
            processes.die_with_parent(supervisor)  # the kernel forgets it when rights change
        elif user := learner.get("user"):
            _become_user(user)
            processes.die_with_parent(supervisor)
        os.chdir(run.learner(rank))
        # The kernel drops signals to process 1 of a namespace for which it has no handler yet, unless they are blocked.
        spawn.default_signals(blocked=(signal.SIGTERM, signal.SIGINT) if view is not None else ())
        agents.become(learner["command"], learner["environment"])
    except BaseException as error:
        os.write(2, f"can't start {' '.join(learner['command'])}: {error}\n".encode())
    finally:
        os._exit(127)


def _become_user(user: int) -> None:
    """Become a user without rights, for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    processes.give_rights_up()
