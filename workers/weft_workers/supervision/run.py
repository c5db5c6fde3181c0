"""The folder of one run, through which the engine, the gang's supervisor and the learners' supervisors communicate.

``spec.json``                        what to run; holds the attempt's token, so owner only
``lock``                             held by the supervisors for as long as one of them lives
``supervisor.log``                   what they print, for example a traceback
``gang.json``                        who the gang's supervisor is; its presence means: started, never start it again
``learner-<rank>/``                  the learner's working folder
``learner-<rank>.supervisor.json``   who the learner's supervisor is
``learner-<rank>.agent.log``         what the agent itself printed
``learner-<rank>.exit.json``         how it ended
``stop.json``, ``interrupted``       requests to the supervisors
``failed.json``                      why the gang could not start
``unsent.json``                      a process was started that sends the agents' unsent lines and metrics
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_core import processes
from weft_workers.supervision import files
from weft_workers.supervision.cgroups import MemoryGroup

if TYPE_CHECKING:
    from pathlib import Path

VANISHED = "its process vanished"
RESTARTED = "its machine or container was restarted"
_SHUTDOWN_GRACE = 20.0
GONE = ".gone-"  # prefix of folders that are being deleted


class Stop(NamedTuple):
    """A request to end: SIGTERM was due when it was written, SIGKILL is at ``deadline``."""

    deadline: float  # time.monotonic(), which is the same for all processes of a machine until it reboots
    remove: bool  # whether the folder goes too, or stays to be observed


class Exit(NamedTuple):
    """How a learner ended."""

    exit_code: int  # negative: killed by that signal
    reason: str
    oom: bool = False
    interrupted: bool = False


class RunFolder:
    """One run's folder; no state of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.lock = path / "lock"
        self.log = path / "supervisor.log"
        self.requests = path.parent / ".lock"  # held by a process that launches, stops or removes a run

    # --- what it is ---

    def read_spec(self) -> dict[str, Any] | None:
        return files.read_json(self.path / "spec.json")

    def write_spec(self, spec: dict[str, Any]) -> None:
        files.write_json(self.path / "spec.json", spec)

    def add_learners(self, spec: dict[str, Any], more: list[dict[str, Any]]) -> None:
        """Have the gang's supervisor start more learners than ``spec``, which is there, has. The caller holds
        ``requests``."""
        self.write_spec({**spec, "learners": [*spec["learners"], *more]})
        if gang := self.gang():
            processes.send(gang, signal.SIGUSR1)

    def learner(self, rank: int) -> Path:
        """The working folder of a learner."""
        return self.path / f"learner-{rank}"

    def agent_log(self, rank: int) -> Path:
        return self.path / f"learner-{rank}.agent.log"

    def group_name(self, rank: int) -> str:
        """The name of a learner's control group: the same for everyone who computes it, and of this folder only."""
        return f"{self.name}.{rank}.{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:8]}"

    # --- who looks after it ---

    def alive(self) -> bool:
        """Whether one of its supervisors lives, or a process that sends what their agents had not sent."""
        return files.held(self.lock)

    def started(self) -> bool:
        """Whether a gang was ever started."""
        return (self.path / "gang.json").exists()

    def write_gang(self) -> None:
        files.write_json(self.path / "gang.json", {"process": processes.identity(os.getpid())})

    def write_supervisor(self, rank: int, agent: int | None = None) -> None:
        """Note this process as a learner's supervisor, and the agent once it runs."""
        content = {"process": processes.identity(os.getpid()), "agent": processes.identity(agent) if agent else None}
        files.write_json(self.path / f"learner-{rank}.supervisor.json", content)

    def gang(self) -> processes.Identity | None:
        return self._process("gang.json", "process")

    def supervisor(self, rank: int) -> processes.Identity | None:
        return self._process(f"learner-{rank}.supervisor.json", "process")

    def agent(self, rank: int) -> processes.Identity | None:
        return self._process(f"learner-{rank}.supervisor.json", "agent")

    def _process(self, name: str, key: str) -> processes.Identity | None:
        return processes.parse_identity((files.read_json(self.path / name) or {}).get(key))

    # --- how it ended ---

    def exit(self, rank: int) -> Exit | None:
        found = files.read_json(self.path / f"learner-{rank}.exit.json")
        return Exit(**found) if found else None

    def write_exit(self, rank: int, how: Exit) -> None:
        files.write_json(self.path / f"learner-{rank}.exit.json", how._asdict())

    def failure(self) -> str:
        """Why the gang could not start; empty: nothing of the kind."""
        return str((files.read_json(self.path / "failed.json") or {}).get("message", ""))

    def fail(self, message: str) -> None:
        files.write_json(self.path / "failed.json", {"message": message})

    # --- what is asked of it ---

    def stop_request(self) -> Stop | None:
        found = files.read_json(self.path / "stop.json")
        return Stop(**found) if found else None

    def interrupted(self) -> bool:
        return (self.path / "interrupted").exists()

    def request_stop(self, grace: float, *, remove: bool) -> None:
        """Ask the supervisors to end the run. Of several requests the shortest grace counts. A run that they have just
        ended and removed is left alone.

        The caller holds ``requests``.
        """
        before = self.stop_request()
        wanted = Stop(time.monotonic() + max(grace, 0.0), remove)
        if before:
            wanted = Stop(min(before.deadline, wanted.deadline), remove or before.remove)
        if wanted != before:
            try:
                files.write_json(self.path / "stop.json", wanted._asdict())
            except FileNotFoundError:
                if self.path.is_dir():
                    raise
                return
        # Written before it is announced, and the gang looks after it has given its name: one of the two is in time.
        if gang := self.gang():
            processes.send(gang, signal.SIGUSR1)

    def request_interrupt(self, grace: float) -> None:
        """Ask the supervisors to end the run as interrupted, without forgetting it.

        The caller holds ``requests``.
        """
        try:
            (self.path / "interrupted").touch(mode=0o600)
        except FileNotFoundError:
            return  # ended and removed just now
        self.request_stop(grace, remove=False)

    def shut_down(self) -> None:
        """The machine shuts down, says a SIGTERM: that is nobody's fault, and the job shall go on afterwards."""
        with files.locked(self.requests):
            self.request_interrupt(_SHUTDOWN_GRACE)

    # --- when nobody looks after it any more ---

    def has_unsent(self, rank: int) -> bool:
        """Whether a learner's agent has left a spool, which may hold log lines or metrics that it has not sent."""
        return any((self.learner(rank) / "agent").glob("*/cursor.json"))

    def unsent(self) -> dict[int, dict[str, Any]]:
        """The learners (as the spec has them, by rank) whose end is not known and that have something unsent."""
        learners = enumerate((self.read_spec() or {"learners": []})["learners"])
        return {rank: learner for rank, learner in learners if self.exit(rank) is None and self.has_unsent(rank)}

    def sending(self) -> str:
        """The machine's life (``processes.machine_life``) in which a process was last started to send unsent lines.
        Empty: there has been none, as the supervisors were never killed all at once."""
        return str((files.read_json(self.path / "unsent.json") or {}).get("machine", ""))

    def write_sending(self) -> None:
        """Note that such a process is about to start."""
        files.write_json(self.path / "unsent.json", {"machine": processes.machine_life()})

    def end_leftovers(self, rank: int) -> None:
        """End whatever of a learner has survived all of its supervisors."""
        group = MemoryGroup.find(self.group_name(rank))
        marker = f"WEFT_WORKDIR={self.learner(rank)}"
        processes.end_with_environment(marker, group.pids if group else tuple)
        if group:
            group.remove()

    def remove(self) -> None:
        """Make the folder disappear at once, and its content in the background."""
        hidden = self.path.with_name(f"{GONE}{self.name}-{os.getpid()}-{time.monotonic_ns()}")
        try:
            self.path.rename(hidden)
        except FileNotFoundError:  # somebody else was first
            return
        erase(hidden)


def erase(folder: Path) -> None:
    """Delete a folder in the background; what a user's program has made read-only needs a second try."""
    import subprocess  # no supervisor needs it to start its learners

    script = '{ rm -rf -- "$1" || { chmod -R u+rwX -- "$1"; rm -rf -- "$1"; }; } >/dev/null 2>&1 &'
    subprocess.run(
        ["/bin/sh", "-c", script, "sh", os.fspath(folder)], stdin=subprocess.DEVNULL, cwd="/", start_new_session=True
    )
