"""The local engine: it writes and reads run folders. The processes that outlive a call are in ``supervision``."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from weft_core import processes
from weft_core.engine import (
    Capacity,
    EngineUnreachable,
    LaunchRefused,
    LearnerObservation,
    LearnerState,
    Observation,
    Preparation,
)
from weft_core.engine_settings import LocalSettings
from weft_core.launch import LaunchSpec
from weft_core.outgoing import Outgoing
from weft_workers.engines.local import isolation, users
from weft_workers.engines.local.machine import Machine, Slots
from weft_workers.engines.local.places import places
from weft_workers.engines.local.preparing import prepare
from weft_workers.environments import Environment, EnvironmentBuilder
from weft_workers.supervision import files, sandbox, spawn, waits
from weft_workers.supervision.fork_server import ForkServer
from weft_workers.supervision.run import GONE, RESTARTED, VANISHED, Exit, RunFolder, erase
from weft_workers.supervision.waits import Recipe

_logger = logging.getLogger(__name__)
_DRAFT = ".new-"  # prefix of folders that are being made
_START_SECONDS = 30.0  # before its first start, a fork server loads the agent, which takes seconds on a busy machine
# The variables that a learner gets from the worker's own environment: the machine's ways to the network and its
# libraries.
_INHERITED = re.compile(
    r"LD_LIBRARY_PATH|LANG|LC_\w+|TZ|SSL_CERT_(FILE|DIR)|(REQUESTS|AWS|CURL)_CA_BUNDLE|(HTTPS?|ALL|NO)_PROXY",
    re.IGNORECASE,
)
_IDENTITY = ("installation", "project_id", "job_id", "attempt")


class LocalEngine:
    """Learners as processes of this machine.

    Args:
        home: holds the runs' folders and the cache; engines and workers that share it see the same runs.
        images: the images that learners run in.
        outgoing: knows which hosts of manifests' URLs may be called; None: those of the internet.
    """

    def __init__(
        self,
        name: str,
        settings: LocalSettings,
        home: Path,
        images: EnvironmentBuilder,
        installation_id: str,
        outgoing: Outgoing | None = None,
    ) -> None:
        self.name = name
        self.grows_runs = True
        self._settings = settings
        self._home = home.expanduser().absolute()
        self._images = images
        self._installation = installation_id
        self._outgoing = outgoing or Outgoing(())
        self._runs = self._home / "runs"
        self._cache = (settings.cache_dir or self._home / "cache").expanduser().absolute()
        self._fork_server = ForkServer(_own_environment(), _START_SECONDS)

    # --- the contract with the reconciler ---

    def prepare(self, jobs: Mapping[str, str]) -> Mapping[str, Preparation]:
        with self._reachable():
            if jobs:
                self._runs.mkdir(parents=True, exist_ok=True, mode=0o700)  # so that `weft down` ends builds, too
            return prepare(self._home, self.name, self._images, jobs)

    def launch(self, spec: LaunchSpec) -> None:
        with self._reachable():
            run = self._run(spec.run_name)
            if not run.started():
                machine = Machine.of(self._settings)
                machine.refuse(spec)
                environment = self._images.locate(spec.image)
                agent = self._images.agent()
                with self._changing():
                    self._create(run, spec, machine, environment, agent)
                    self._start(run, agent)
            self._check_adopted(run, spec)

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        with self._reachable(), self._changing():
            run = self._run(spec.run_name)
            there = run.read_spec()
            if there is None or not self._is_ours(there):
                raise LaunchRefused(f"there is no run {spec.run_name} on engine {self.name}")
            self._check_adopted(run, spec)
            first = len(there["learners"])
            missing = [rank for rank in sorted(ranks) if rank >= first]
            if not missing:
                return
            if not run.alive() or run.sending() or run.stop_request():
                raise LaunchRefused(f"run {spec.run_name} has ended")
            if missing != list(range(first, first + len(missing))):
                raise ValueError(f"{spec.run_name} has {first} learners, after which {missing} can't come")
            slots = Machine.of(self._settings).assign(replace(spec, learners=len(missing)), self._taken())
            if slots is None:
                raise EngineUnreachable(f"not enough GPUs are free for more learners of {spec.run_name}")
            environment, agent = self._images.locate(spec.image), self._images.agent()
            user = self._user(spec)
            more = [
                self._learner(run, rank, spec, environment, agent, own, user)
                for rank, own in zip(missing, slots, strict=True)
            ]
            run.add_learners(there, more)

    def observe(self) -> Mapping[str, Observation]:
        with self._reachable():
            seen = [self._observe(run, spec) for run, spec in self._all() if self._is_ours(spec)]
            return {observation.run_name: observation for observation in seen if observation}

    def stop(self, run_name: str, grace: timedelta) -> None:
        run = self._run(run_name)
        with self._reachable():
            if not run.path.is_dir():
                return
            with self._changing():
                there = run.read_spec()
                if not run.path.is_dir() or (there is not None and not self._is_ours(there)):
                    return
                run.request_stop(grace.total_seconds(), remove=True)
                if not run.alive() and not self._send_unsent(run):
                    self._forget(run)

    def capacity(self) -> Capacity:
        with self._reachable():
            machine = Machine.of(self._settings).capacity
            return replace(
                machine,
                images=self._images.ready(),
                exposed=isolation.exposure(self._settings),
                shared_network=isolation.shared_network(self._settings),
            )

    def folders(self, spec: LaunchSpec) -> list[Path]:
        """The learners' working folders, by rank."""
        run = self._run(spec.run_name)
        return [run.learner(rank) for rank in range(spec.learners)]

    # --- launch ---

    def _create(
        self, run: RunFolder, spec: LaunchSpec, machine: Machine, environment: Environment, agent: Path
    ) -> None:
        """Make the run's folder, unless it is there. It appears whole, so there are no half-made ones to adopt."""
        for entry in self._runs.iterdir():
            if entry.name.startswith((_DRAFT, GONE)):  # of a worker that was killed: nobody else has the lock
                erase(entry)
        if run.read_spec() is not None:
            return
        if run.path.is_dir():
            run.remove()  # damaged, by a power cut perhaps; nothing was ever started in it
        slots = machine.assign(spec, self._taken())
        if slots is None:
            raise EngineUnreachable(
                f"not enough GPUs are free for {spec.run_name}: {spec.learners} × {spec.resources.gpus} asked, "
                f"{len(machine.gpus)} on this machine; runs that are ending may still hold some"
            )
        draft = RunFolder(self._runs / f"{_DRAFT}{run.name}-{os.getpid()}-{time.monotonic_ns()}")
        (draft.path / "shared").mkdir(parents=True, mode=0o700)
        draft.path.chmod(0o700)
        self._cache_of(spec).mkdir(mode=0o700, parents=True, exist_ok=True)
        user = self._user(spec)
        if user is not None:
            users.open_way([self._home, self._runs, self._cache, self._images.root, draft.path])
            os.chown(draft.path / "shared", user, user)
        learners = [self._learner(run, rank, spec, environment, agent, own, user) for rank, own in enumerate(slots)]
        reached = None
        if self._isolates() and not isolation.network_obstacle():
            reached = places(spec, self._settings.reachable, self._outgoing, learners[0]["environment"])
        draft.write_spec(
            {
                "engine": self.name,
                "run_name": spec.run_name,
                **{field: getattr(spec, field) for field in _IDENTITY},
                "recipe": environment.recipe._asdict() if environment.recipe else None,
                "machine": processes.machine_life(),
                "places": reached,
                "learners": learners,
            }
        )
        draft.path.rename(run.path)

    def _learner(
        self,
        run: RunFolder,
        rank: int,
        spec: LaunchSpec,
        environment: Environment,
        agent: Path,
        own: Slots,
        user: int | None,
    ) -> dict[str, Any]:
        variables = self._environment(run, rank, spec, environment, agent, own)
        writable = [self._home, self._cache_of(spec), *self._settings.host_mounts]
        tmp = run.path / f"learner-{rank}.tmp"
        view = isolation.view(environment, agent, variables, tmp, writable, bool(own.gpus))
        return {
            "command": [str(environment.python), "-m", "weft_trainer"],
            "environment": variables,
            "view": view if self._isolates() else None,
            "user": user,
            "memory": spec.resources.memory,
            "gpus": own.gpus,
            "cores": own.cores,
        }

    def _environment(
        self, run: RunFolder, rank: int, spec: LaunchSpec, environment: Environment, agent: Path, own: Slots
    ) -> dict[str, str]:
        """A learner's environment: nothing of the server's but what :data:`_INHERITED` allows."""
        work = run.learner(rank)
        ours = os.path.join(sys.prefix, "bin")  # the server's own programs are not for the learner
        path = [part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if part and part != ours]
        return {
            "LANG": "C.UTF-8",
            **{name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)},
            "PATH": os.pathsep.join([str(environment.python.parent), *path]),
            "VIRTUAL_ENV": str(environment.folder),
            "PYTHONPATH": str(agent),
            "PYTHONNOUSERSITE": "1",
            "HOME": str(work),
            "TERM": "dumb",
            "OMP_NUM_THREADS": str(max(1, int(spec.resources.cpus))),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order that nvidia-smi numbers them in
            "CUDA_VISIBLE_DEVICES": ",".join(own.gpus),
            "WEFT_API_URL": spec.api_url,
            "WEFT_ATTEMPT_TOKEN": spec.token,
            "WEFT_RANK": str(rank),
            "WEFT_NUM_LEARNERS": str(spec.learners),
            "WEFT_WORKDIR": str(work),
            "WEFT_SHARED_DIR": str(run.path / "shared"),
            "WEFT_CACHE_DIR": str(self._cache_of(spec)),
            **({sandbox.VARIABLE: isolation.hidden([self._home, self._cache])} if self._isolates() else {}),
            "WEFT_CACHE_SIZE": "" if self._settings.cache_size is None else str(self._settings.cache_size),
            **({"TRACEPARENT": spec.traceparent} if spec.traceparent else {}),
            "WEFT_ADVERTISE_ADDRESS": "127.0.0.1",  # all learners are here, whatever the network does
        }

    def _isolates(self) -> bool:
        """Whether learners get a sandbox. Raises: LaunchRefused: they must, and this machine can't give them any."""
        kind = self._settings.isolation
        if kind == "strict" and (obstacle := isolation.obstacle() or isolation.network_obstacle()):
            raise LaunchRefused(f"this machine can't keep jobs apart, and isolation is strict: {obstacle}")
        return kind != "none" and not isolation.obstacle()

    def _user(self, spec: LaunchSpec) -> int | None:
        """The user that its learners run as; None: the worker's. The caller holds the lock of ``_changing``."""
        chosen = self._settings.users
        if chosen is None or self._settings.isolation == "none" or self._isolates():
            return None
        if trouble := users.obstacle():
            raise LaunchRefused(f"the engine has the setting 'users', but {trouble}")
        first, last = chosen
        return users.assign(self._cache, spec.project_id, first, last)

    def _cache_of(self, spec: LaunchSpec) -> Path:
        """The project's own part of the cache."""
        return self._cache / spec.project_id

    def _start(self, run: RunFolder, agent: Path) -> None:
        """Start the gang's supervisor, unless there ever was one."""
        deadline = time.monotonic() + _START_SECONDS
        while not run.started():
            # Held: by a supervisor that is just starting, or for a moment by a process that observes the run.
            lock = files.take(run.lock)
            if lock is not None:
                try:
                    if run.interrupted() or run.stop_request():
                        return
                    self._fork_server.start(run, lock, agent)
                finally:
                    os.close(lock)
            if time.monotonic() > deadline:
                raise EngineUnreachable(f"the supervisor of {run.name} did not start within {_START_SECONDS:g} s")
            time.sleep(0.002)

    def _check_adopted(self, run: RunFolder, spec: LaunchSpec) -> None:
        """Check that the run with this name belongs to this very attempt."""
        there = run.read_spec()
        if there is None:
            return  # stopped meanwhile
        for field in _IDENTITY:
            if there[field] != getattr(spec, field):
                raise EngineUnreachable(
                    f"a run named {spec.run_name} is there, of another {field} ({there[field]}, "
                    f"not {getattr(spec, field)}): {run.path}"
                )

    def _taken(self) -> list[Slots]:
        """The GPUs and cores that the runs of this home hold, whichever engine started them."""
        return [
            Slots(tuple(learner["gpus"]), tuple(learner["cores"]))
            for run, spec in self._all()
            if run.alive() or not (run.started() or run.interrupted())
            for rank, learner in enumerate(spec["learners"])
            if run.exit(rank) is None
        ]

    # --- observe ---

    def _all(self) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
        try:
            entries = sorted(os.listdir(self._runs))
        except FileNotFoundError:  # nothing was ever launched
            return
        for name in entries:
            run = RunFolder(self._runs / name)
            if not name.startswith(".") and (spec := run.read_spec()) is not None:
                yield run, spec

    def _is_ours(self, spec: Mapping[str, Any]) -> bool:
        return bool(spec["installation"] == self._installation and spec["engine"] == self.name)

    def _observe(self, run: RunFolder, spec: Mapping[str, Any]) -> Observation | None:
        alive = run.alive()  # before the files are read, so that the files of a dead supervisor are complete
        ranks = range(len(spec["learners"]))
        if not alive:
            alive = self._settle(run, ranks, spec.get("machine"))
            if not run.path.is_dir():
                return None
        learners = {rank: learner for rank in ranks if (learner := self._observe_learner(run, rank, alive))}
        starting = alive and not any(learner.state is not LearnerState.STARTING for learner in learners.values())
        progress = waits.progress(Recipe(**spec["recipe"])) if starting and spec["recipe"] else ""
        return Observation(run.name, learners, progress=progress, failed=run.failure())

    @staticmethod
    def _observe_learner(run: RunFolder, rank: int, alive: bool) -> LearnerObservation | None:
        if how := run.exit(rank):
            return LearnerObservation(
                rank,
                LearnerState.EXITED,
                how.exit_code,
                how.reason,
                oom=how.oom,
                interrupted=how.interrupted,
                node=socket.gethostname(),
            )
        if not alive:
            return None
        state = LearnerState.RUNNING if run.agent(rank) else LearnerState.STARTING
        return LearnerObservation(rank, state, node=socket.gethostname())

    def _settle(self, run: RunFolder, ranks: range, machine: str | None) -> bool:
        """Complete the work of a run's dead supervisors: have the rest of the logs and metrics sent, end the remaining
        processes, record how the run ended, and remove it. Returns whether another process is still busy with the run;
        then a later observation does the rest."""
        if all(run.exit(rank) for rank in ranks) and run.stop_request() is None:
            return False
        with self._changing():
            stop = run.stop_request()
            if run.alive() or self._send_unsent(run):
                return True
            if not run.path.is_dir():
                return False
            if stop and stop.remove:
                self._forget(run)
            elif run.interrupted() and not run.failure():
                self._end(run, ranks, Exit(-15, "interrupted", interrupted=True))
            elif run.started() and not run.failure():
                restarted = machine not in (None, processes.machine_life())  # None: launched by an older Weft
                self._end(run, ranks, Exit(-9, RESTARTED if restarted else VANISHED, interrupted=restarted))
        return False

    def _send_unsent(self, run: RunFolder) -> bool:
        """Start a process that sends the unsent lines and metrics of a run's killed agents, if there are any.

        It is started once in each life of the machine. If anything but a restart kills it, the rest is lost. The caller
        holds the lock of ``_changing``, and no supervisor of the run lives.

        Returns:
            Whether the run has to stay for now.
        """
        unsent = run.unsent() if run.started() and not run.failure() else {}
        if not unsent or run.sending() == processes.machine_life():
            return False
        lock = files.take(run.lock)
        if lock is not None:  # None: somebody observes the run at this moment; the next observation starts the process
            try:
                for rank in unsent:
                    run.end_leftovers(rank)
                run.write_sending()
                spawn.detached(
                    "weft_workers.supervision.unsent",
                    [str(run.path), str(lock)],
                    log=run.log,
                    environment=_own_environment(),
                    keep=[lock],
                )
            finally:
                os.close(lock)
        return True

    @staticmethod
    def _end(run: RunFolder, ranks: range, how: Exit) -> None:
        for rank in ranks:
            if run.exit(rank) is None:
                run.end_leftovers(rank)
                run.write_exit(rank, how)

    # --- the end ---

    def _forget(self, run: RunFolder) -> None:
        """Remove a run that no supervisor looks after any more."""
        spec = run.read_spec() or {"learners": []}
        for rank in range(len(spec["learners"])):
            how = run.exit(rank)
            if how is None and run.started():
                run.end_leftovers(rank)
            elif how and how.exit_code and not how.interrupted:
                _logger.info("run %s: learner %d: %s", run.name, rank, how.reason)
        run.remove()

    # --- around everything ---

    def _run(self, name: str) -> RunFolder:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            raise ValueError(f"no name for a run: {name!r}")
        return RunFolder(self._runs / name)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A lock: one process at a time launches, stops or removes runs in this home."""
        self._runs.mkdir(parents=True, exist_ok=True, mode=0o700)
        with files.locked(self._runs / ".lock"):
            yield

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EngineUnreachable(f"engine {self.name}: {error}") from error


def _own_environment() -> dict[str, str]:
    """Of the supervisors: this process's, without Weft's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
