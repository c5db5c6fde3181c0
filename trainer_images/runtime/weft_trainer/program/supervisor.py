"""The run of a launcher's plan, to its end."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft_trainer.control import Control
from weft_trainer.errors import Fenced, TrainerError
from weft_trainer.log.output import Output
from weft_trainer.machine.network import takes_connections
from weft_trainer.machine.sealing import NOTHING, Sealed
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.program import oom
from weft_trainer.program.endings import NOT_RUN, REGROUPED, STOPPED, SUCCESS, Ending, describe, was_killed
from weft_trainer.program.plan import Plan, Process
from weft_trainer.program.processes import Child, kill_strays

_SIBLING_GRACE = 5.0
"""Seconds from SIGTERM to SIGKILL for workers whose sibling has failed: there is nothing left to save."""
_SYNC_SHARE, _SYNC_SECONDS = 0.25, 15.0
"""The agent keeps this share of a stop's grace for itself, and at most these seconds."""
_REGROUP_GRACE = 30.0
"""The same for workers that lose their peers, or get new peers: a worker that handles SIGTERM may save a checkpoint."""
_HELPER_GRACE = 60.0  # a Ray node ends its own processes first, and removes its folder: long on a busy machine
"""Seconds for a helper to clean up outside of its own process."""
_KILL_SECONDS = 10.0
_PORT_TIMEOUT = 600.0
_POLL = 0.05


class Listener:
    """Gets the supervisor's reports while processes run. This base class ignores them, and orders no new round."""

    def stopping(self) -> None:
        """The workers are about to be ended, by a stop or for a new round."""

    def failed(self, ending: Ending) -> None:
        """A worker has failed. The workers that are left are about to be ended."""

    @property
    def regroup(self) -> bool:
        """Whether the workers are to be ended for a new round. The control's bell rings when this changes."""
        return False


class Supervisor:
    """
    Args:
        output: gets the output of the processes.
        default_grace: seconds from a stop to SIGKILL, unless the stop brings its own.
    """

    def __init__(
        self, control: Control, output: Output, watchdog: Watchdog, default_grace: float, listener: Listener
    ) -> None:
        self._control = control
        self._output = output
        self._watchdog = watchdog
        self._default_grace = default_grace
        self._listener = listener
        self._children: list[Child] = []
        self._helpers: list[Child] = []

    def run(self, plan: Plan, command: str, env: Mapping[str, str], folder: Path, sealed: Sealed = NOTHING) -> Ending:
        """Helpers are left running (see ``end_helpers``): other learners may still need them.

        Args:
            plan: the processes.
            command: the user's, for messages.
            env: of all processes.
            folder: in which they start.
            sealed: folders that they can't write.

        Raises:
            Fenced: and everything has been killed.
            TrainerError: a process can't be started.
        """
        kills_before = oom.kills()

        def start(process: Process) -> Child:
            try:
                return Child(process, env, folder, self._output, self._control.ring, self._watchdog, sealed)
            except OSError as error:
                raise TrainerError(f"{process.argv[0]} can't be started: {error.strerror or error}") from None

        try:
            self._helpers = [start(process) for process in plan.helpers]
            early = self._await_ports(plan)
            if early is not None:
                return early
            for process in plan.processes:
                self._children.append(start(process))
            ending = self._watch(command, folder, kills_before)
        except (Fenced, TrainerError):
            self._end([*self._children, *self._helpers], grace=0)
            raise
        return self._with_interrupted_writes(ending)

    def _with_interrupted_writes(self, ending: Ending) -> Ending:
        """Add whether a process may have been ended in the middle of a write. When a stop came, the open files were
        noted, so the ending need not say more about processes that SIGTERM ended."""
        codes = [child.code for child in self._children if child.code is not None]
        cut_off = ending in (STOPPED, REGROUPED) and -signal.SIGTERM in codes
        killed = any(was_killed(code) for code in codes if not (cut_off and code == -signal.SIGTERM))
        return ending._replace(killed_at=time.time() if killed else None, cut_off=cut_off)

    def end_helpers(self) -> None:
        """At the very end."""
        self._end(self._helpers, _HELPER_GRACE)

    def _await_ports(self, plan: Plan) -> Ending | None:
        end = time.monotonic() + _PORT_TIMEOUT
        for address, port in plan.await_ports:
            while not takes_connections(address, port):
                failed = self._failed_helper()
                if failed is not None:
                    return failed
                if self._control.fenced:
                    raise Fenced
                if self._control.stop_requested:
                    return STOPPED
                if self._listener.regroup:
                    return REGROUPED
                if time.monotonic() > end:
                    return Ending(1, f"no answer from {address}:{port}, where learner 1 should serve the rendezvous")
                self._control.sleep(_POLL)
        return None

    def _watch(self, command: str, folder: Path, kills_before: oom.Kills) -> Ending:
        while True:
            failed = min(
                (child for child in self._children if child.code), key=lambda child: child.ended_at, default=None
            )
            if failed is not None:
                assert failed.code is not None
                # The shell's complaint names the command that it could not run. Other output need not be read just now.
                failed.drain(2.0 if failed.code in NOT_RUN else 0.2)
                memory = oom.kills().since(kills_before)
                ending = describe(failed.code, command, self._output.last_lines, memory, folder)
                self._listener.failed(ending)
                self._end(self._children, _SIBLING_GRACE)
                return ending
            if all(child.code == 0 for child in self._children):
                self._end(self._children, _SIBLING_GRACE)
                return SUCCESS
            helper = self._failed_helper()
            if helper is not None:
                self._end(self._children, _SIBLING_GRACE)
                return helper
            if self._control.fenced:
                raise Fenced
            if self._control.stop_requested:
                self._stop()
                return STOPPED
            if self._listener.regroup:
                self._listener.stopping()
                self._end(self._children, min(self._default_grace, _REGROUP_GRACE))
                return REGROUPED
            self._control.wait()

    def _failed_helper(self) -> Ending | None:
        for helper in self._helpers:
            if helper.code is not None:
                helper.finish()
                return Ending(
                    1, f"a helper process of the launcher ended early (exit code {helper.code}): {helper.last_line}"
                )
        return None

    def _stop(self) -> None:
        self._listener.stopping()
        grace = self._default_grace if self._control.stop_grace is None else self._control.stop_grace
        # The engine counts the same grace until it kills the agent, and a checkpoint must still reach S3 by then.
        self._end(self._children, grace - min(_SYNC_SHARE * grace, _SYNC_SECONDS))

    def _end(self, children: Sequence[Child], grace: float) -> None:
        """SIGTERM to the whole groups, SIGKILL to the groups that are left after ``grace``.

        Raises:
            Fenced: it came meanwhile. All processes are killed by then.
        """
        left = [child for child in children if child.group_alive]
        if grace > 0:
            for child in left:
                child.signal_group(signal.SIGTERM)
        end = time.monotonic() + grace
        fenced_before = self._control.fenced
        while left and time.monotonic() < end and self._control.fenced == fenced_before:
            self._control.wait(_POLL)
            left = [child for child in left if child.group_alive]
        for child in left:
            child.signal_group(signal.SIGKILL)
        end = time.monotonic() + _KILL_SECONDS
        while left and time.monotonic() < end:
            time.sleep(0.005)
            left = [child for child in left if child.group_alive]
        running = (child.pid for child in (*self._children, *self._helpers) if child.code is None)
        kill_strays(spare={*self._watchdog.own, *running})
        for child in children:
            child.finish()
        if self._control.fenced and not fenced_before:
            raise Fenced
