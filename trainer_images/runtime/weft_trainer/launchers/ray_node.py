"""``python -m weft_trainer.launchers.ray_node OPTIONS``: keeps one Ray node of the job's cluster.

There are two processes. The first is the agent's child and stays in its process group, which the agent or its watchdog
ends. The second, the keeper, is the ancestor of all of Ray's processes. A pipe shows the keeper the end of the first
process, for whatever reason (`kill -9` of the agent included). The keeper then removes all processes and files.
Processes that Ray's workers start, in whatever session, become children of the keeper when their parents die.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from weft_trainer.launchers.ray_folder import session_folder
from weft_trainer.launchers.ray_gate import Gate, GateClient, GateClosed
from weft_trainer.launchers.ray_options import (
    AGENT_PORTS,
    START_HOOK,
    START_SECONDS,
    NodeOptions,
    object_store,
    spill_folder,
    start_command,
)
from weft_trainer.machine.network import ReservedPorts
from weft_trainer.machine.prctl import become_reaper, die_with_parent

_OLDEST = (2, 52)
"""The first version of Ray that can require a token of its clients (RAY_AUTH_MODE=token)."""
_JOIN_SECONDS = 540.0
"""How long the fastest learner waits for the node of the slowest learner to join, downloads included."""
_POLL = 0.05
_LOGS = ("gcs_server.out", "raylet.out")
_LAST = 8
"""Lines of each of these logs."""


class NodeFailed(Exception):
    """The message is for the user: the agent makes it the learner's reason."""


class Keeper:
    def __init__(self, options: NodeOptions, stop: threading.Event) -> None:
        self._options = options
        self._stop = stop
        self._token = os.environ["RAY_AUTH_TOKEN"]
        self._ray: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Until a stop. Raises: NodeFailed."""
        check_version()
        with session_folder() as folder:
            try:
                self._keep(folder)
            finally:
                end_descendants()
                shutil.rmtree(spill_folder(folder), ignore_errors=True)

    def _keep(self, folder: Path) -> None:
        options = self._options
        gate = None
        if options.is_head:
            gate = Gate(options.gate_port, self._token, options.learners, self._is_well)
        else:
            self._await_head()
        if not self._stop.is_set():
            self._start(folder)
        if self._stop.is_set():
            return
        if gate is None:
            with contextlib.suppress(GateClosed):  # learner 1 has ended meanwhile, and says why
                GateClient(options.head, options.gate_port, self._token).joined(options.rank)
        else:
            gate.join(0)
            self._await_others(gate, lambda: self._check(folder))
        while not self._stop.wait(_POLL):
            self._check(folder)

    def _await_head(self) -> None:
        """Not only for its port: `ray start` gives up when the head is not all there within 40 seconds."""
        client = GateClient(self._options.head, self._options.gate_port, self._token)
        up = threading.Event()

        def ask() -> None:
            while not up.is_set():
                try:
                    client.head()
                    up.set()
                except GateClosed:
                    time.sleep(_POLL)

        threading.Thread(target=ask, daemon=True).start()
        failure = f"learner 1 has not started the head of the job's Ray cluster within {_JOIN_SECONDS:.0f} s"
        self._wait(up.is_set, _JOIN_SECONDS, failure)

    def _start(self, folder: Path) -> None:
        log = folder / "start.log"
        env = {name: value for name, value in os.environ.items() if name not in self._options.unset}
        env["RAY_START_HOOK"] = START_HOOK
        keeper = os.getpid()
        with ReservedPorts(len(AGENT_PORTS)) as ports, log.open("wb") as output:
            command = start_command(self._options, folder, object_store(self._options.memory), ports.numbers)
            ports.release()
            self._ray = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # The last resort: if the keeper is killed, the kernel kills this one, and with it all of Ray's.
                preexec_fn=lambda: die_with_parent(keeper),
            )
            # Where `ray.init(address="auto")` looks, too; `ray start` writes it when the node is registered.
            self._wait(
                (folder / "ray_current_cluster").exists, START_SECONDS, "Ray did not start", lambda: self._check(folder)
            )

    def _await_others(self, gate: Gate, check: Callable[[], None]) -> None:
        end = time.monotonic() + _JOIN_SECONDS
        while missing := gate.missing:
            if self._stop.wait(_POLL):
                return
            check()
            if time.monotonic() > end:
                learners = self._options.learners
                names = ", ".join(f"learner {rank + 1}" for rank in missing)
                raise NodeFailed(
                    f"only {learners - len(missing)} of {learners} learners have joined the job's Ray cluster within "
                    f"{_JOIN_SECONDS:.0f} s; missing: {names}"
                )

    def _wait(
        self, condition: Callable[[], bool], seconds: float, failure: str, check: Callable[[], None] = lambda: None
    ) -> None:
        end = time.monotonic() + seconds
        while not condition() and not self._stop.wait(_POLL):
            check()
            if time.monotonic() > end:
                raise NodeFailed(failure)

    def _check(self, folder: Path) -> None:
        assert self._ray is not None
        if self._ray.poll() is not None:
            learner = self._options.rank + 1
            for line in last_lines(folder):
                print(line, flush=True)
            raise NodeFailed(f"Ray has ended on learner {learner}: {why_it_ended(folder / 'start.log')}")

    def _is_well(self) -> bool:
        """Whether all processes that `ray start` started still run; `ray start` itself checks only once a second."""
        import psutil

        try:
            ray = psutil.Process(self._ray.pid if self._ray else 0)
            return all(process.status() != psutil.STATUS_ZOMBIE for process in [ray, *ray.children()])
        except psutil.Error:
            return False


def check_version() -> None:
    """Raises: NodeFailed."""
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        raise NodeFailed("this learner's image has no Ray, which launcher 'ray' needs") from None
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST:
        raise NodeFailed(
            f"this learner's image has Ray {version}; launcher 'ray' needs {'.'.join(map(str, _OLDEST))} or newer, "
            "which can require a token of its clients"
        )


def why_it_ended(log: Path) -> str:
    """The most telling line of what `ray start` printed."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [re.sub(r"^\d{4}-\d\d-\d\d \S+\s+\S+ \S+ -- ", "", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    for number, line in enumerate(lines):
        if "exited unexpectedly" in line:
            return " ".join(lines[number + 1 : number + 2]) or line
    return lines[-1] if lines else "it said nothing"


def last_lines(folder: Path) -> list[str]:
    """The last lines of the logs of Ray's servers, for the job's log: `ray start` names a server that died, but says
    nothing about the reason, and the logs go with the folder."""
    found = []
    for name in _LOGS:
        log = folder / "session_latest" / "logs" / name
        with contextlib.suppress(OSError):
            lines = log.read_text(errors="replace").splitlines()
            dated = [line for line in lines if line.startswith("[")]  # the others are statistics and stack frames
            found += [f"{name}: {line}" for line in dated[-_LAST:]]
    return found


def end_descendants() -> None:
    """SIGKILL everything below this process, which adopts orphans, until nothing is left."""
    import psutil

    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def _keep(options: NodeOptions, pipe: int) -> int:
    """The keeper's whole life."""
    os.setsid()
    become_reaper()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def listen() -> None:
        os.read(pipe, 1)
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        Keeper(options, stop).run()
    except (NodeFailed, OSError) as error:
        if not stop.is_set():
            print(error, flush=True)
        return 1
    return 0


def main(options: NodeOptions) -> int:
    """The first process: waits for the keeper, and has it end when it is to end itself."""
    read_end, write_end = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.close(write_end)
        code = 1
        try:
            code = _keep(options, read_end)
        finally:
            os._exit(code)
    os.close(read_end)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(keeper, signal.SIGTERM))
    return os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])


if __name__ == "__main__":
    sys.exit(main(NodeOptions(**json.loads(sys.argv[1]))))
