"""The supervisor of one run: waits for its environment, makes its network, starts all learners' supervisors, cleans up
after them. It holds the run's lock as long as it lives.

Two layers, so that one of them is left: if a learner's supervisor is killed, its processes fall to this one, which ends
them; if this one is killed, the learners' supervisors end theirs. If both are killed at once, the kernel ends the
agents, and the next observation of the run ends the rest.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from typing import Any

from weft_core import processes
from weft_workers.supervision import cgroups, netlink, network, relay, spawn
from weft_workers.supervision.learner import SIGNALS, LearnerSupervisor
from weft_workers.supervision.run import VANISHED, Exit, RunFolder
from weft_workers.supervision.waits import Recipe, Wait

_RELAY_SECONDS = 1.0
"""The pause between the starts of a gang's relays, if one can't stay alive, for instance for lack of memory."""


class Gang:
    """All learners of a run, or none."""

    def __init__(self, run: RunFolder, spec: dict[str, Any]) -> None:
        self._run = run
        self._learners = spec["learners"]
        self._recipe = Recipe(**spec["recipe"]) if spec["recipe"] else None
        self._supervisors: dict[int, int] = {}  # pid -> rank
        places = spec.get("places")  # older runs have none
        self._isolated = places is not None
        self._places = [*(netlink.Endpoint(*place) for place in places or ()), *relay.name_servers()]
        self._network: network.Network | None = None
        self._relay = 0  # a pid
        self._connected = -_RELAY_SECONDS
        self._unpublished: list[socket.socket] = []
        self._publishers: dict[int, list[socket.socket]] = {}  # pid -> the ports of learners that it leads to

    def run(self) -> None:
        if self._recipe and not self._environment(self._recipe):
            return
        # Only now: the build of an environment, which others share, must not fall to this process.
        processes.adopt_orphans()
        self._start()
        self._wait()

    def _environment(self, recipe: Recipe) -> bool:
        """Wait until it is built; False: it can't be, or isn't wanted any more."""
        wait = Wait(recipe, self._run.name, processes.identity(os.getpid()))
        try:
            while not (found := wait.check()).ready:
                if found.failed:
                    self._run.fail(f"environment {recipe.image} could not be built: {found.failed}")
                    return False
                if self._stopping(signal.sigtimedwait(SIGNALS, 0.1)):
                    return False
        finally:
            wait.end()
        return not self._stopping(None)

    def _stopping(self, received: signal.struct_siginfo | None) -> bool:
        if received and received.si_signo in (signal.SIGTERM, signal.SIGINT):
            self._run.shut_down()
        return self._run.stop_request() is not None

    def _start(self) -> None:
        try:
            if self._isolated:
                self._network = network.make(self._places)
                self._connect()
            self._fork(0)
        except OSError as error:  # no more processes allowed: all or none
            processes.end_descendants()
            self._supervisors.clear()
            self._run.fail(f"can't start {len(self._learners)} learners: {error.strerror}")

    def _fork(self, first: int) -> None:
        """Start the learners from this one on."""
        gang = os.getpid()
        new = dict(enumerate(self._learners[first:], first))
        for rank, learner in new.items():  # before any of them starts, as this can fail
            self._run.learner(rank).mkdir(mode=0o700, exist_ok=True)
            if user := learner.get("user"):
                os.chown(self._run.learner(rank), user, user)
        for rank, learner in new.items():
            if self._network:
                listener = network.listen()
                self._unpublished.append(listener)
                port = {"WEFT_PUBLISHED_PORT": str(listener.getsockname()[1])}
                learner = {**learner, "environment": {**learner["environment"], **port}}
            pid = os.fork()
            if pid == 0:
                shared = self._network.namespaces if self._network else None
                spawn.end_with(LearnerSupervisor(self._run, rank, gang, learner, shared).supervise)
            self._supervisors[pid] = rank
        self._publish()

    def _start_more(self) -> None:
        """Start learners that were added since."""
        there = (self._run.read_spec() or {"learners": []})["learners"]
        first = len(self._learners)
        if len(there) <= first or self._run.stop_request():
            return
        self._learners = there
        try:
            self._fork(first)
        except OSError as error:  # the others go on
            for rank in set(range(first, len(there))) - set(self._supervisors.values()):
                self._run.write_exit(rank, Exit(-signal.SIGKILL, f"it can't be started: {error.strerror}"))

    def _wait(self) -> None:
        told = None
        while self._supervisors:
            received = signal.sigtimedwait(SIGNALS, 5.0)
            self._start_more()
            stop = self._run.stop_request() if self._stopping(received) else None
            if stop != told:
                told = stop
                for pid in self._supervisors:
                    os.kill(pid, signal.SIGUSR1)
            self._bury(processes.reap())
            self._connect()

    def _connect(self) -> None:
        """Start the relay and the publishers that are missing. The end of one breaks its connections."""
        now = time.monotonic()
        if self._network is None or (self._relay and not self._unpublished):
            return
        if now < self._connected + _RELAY_SECONDS:
            return
        self._connected = now
        self._publish()
        if not self._relay:
            with suppress(OSError):  # no more processes allowed: later, then
                self._relay = network.start_relay(self._network, self._places)

    def _publish(self) -> None:
        """Let the machine reach the learners' own ports."""
        if self._network is not None and self._unpublished:
            with suppress(OSError):  # no more processes allowed: later, then
                self._publishers[network.start_publisher(self._network, self._unpublished)] = self._unpublished
                self._unpublished = []

    def _bury(self, ended: dict[int, int]) -> None:
        """Note how learners' supervisors ended; the processes that a killed one left behind are now below this
        process."""
        while ended:
            if self._relay in ended:
                self._relay = 0
            for publisher in ended.keys() & self._publishers.keys():
                self._unpublished += self._publishers.pop(publisher)
            ranks = [self._supervisors.pop(pid) for pid in ended if pid in self._supervisors]
            orphaned = [rank for rank in ranks if self._run.exit(rank) is None]
            ended = processes.end_descendants(spare={*self._supervisors, *self._publishers, self._relay})
            for rank in orphaned:
                if group := cgroups.MemoryGroup.find(self._run.group_name(rank)):
                    group.remove()
                self._run.write_exit(rank, Exit(-signal.SIGKILL, VANISHED, False, self._run.interrupted()))
            ended = {pid: status for pid, status in ended.items() if pid in self._supervisors}


def supervise(run: RunFolder) -> None:
    """The whole life of a run's supervisor, in a process with no threads and no children."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    run.write_gang()
    try:
        spec = run.read_spec()
        if spec is None:
            raise FileNotFoundError(f"{run.path / 'spec.json'} is missing or damaged")
        Gang(run, spec).run()
    except Exception as error:
        spawn.show(error)
        processes.end_descendants()
        run.fail(f"the supervisor of the run failed: {error}")
    stop = run.stop_request()
    if stop and stop.remove:
        run.remove()
