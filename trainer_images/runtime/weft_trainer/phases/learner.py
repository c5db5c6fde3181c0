"""The object that all phases of a learner share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_trainer.checkpoints.checkpoints import Checkpoints
from weft_trainer.config import RUNTIME, Config
from weft_trainer.control import Control
from weft_trainer.errors import Fenced, TrainerError
from weft_trainer.folders import Folders
from weft_trainer.inputs.overlay import Overlay
from weft_trainer.log.lines import Line
from weft_trainer.log.shipper import LogShipper
from weft_trainer.log.stall_inspector import StallInspector
from weft_trainer.log.tail import LogTail
from weft_trainer.machine.network import interface_of, own_address
from weft_trainer.machine.sealing import Sealed
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.metrics.learner import LearnerMetrics
from weft_trainer.program.environment import (
    allocation_default,
    build_environment,
    device_default,
    network_defaults,
    thread_default,
)
from weft_trainer.program.plan import Plan
from weft_trainer.program.supervisor import Listener, Supervisor
from weft_trainer.program.venv import Venv, make_venv
from weft_trainer.results.leftovers import JobFolder
from weft_trainer.service.client import ApiClient
from weft_trainer.service.heartbeat import Heartbeat
from weft_trainer.service.identity import keep_token
from weft_trainer.service.mask import secrets_in
from weft_trainer.service.reporter import Reporter
from weft_trainer.service.spool import Spool
from weft_trainer.service.vitals import Vitals
from weft_trainer.spec import LearnerSpec, S3Location
from weft_trainer.stores.installation import InstallationStore
from weft_trainer.stores.paths import files_below
from weft_trainer.stores.s3 import S3Store
from weft_trainer.stores.store import Store
from weft_trainer.stores.temporary_keys import keep_keys
from weft_trainer.tunnels.place import Place
from weft_trainer.tunnels.profiles import Profiles
from weft_trainer.tunnels.tunnels import Tunnels

if TYPE_CHECKING:
    from weft_trainer.program.profiles import Profiler

LOG_SPOOL = "spool"
"""Folder of the log's spool, in the agent's own."""


class Learner(Listener):
    """A granted learner: its spec, its folders, and the parts that run beside all of its phases.

    Raises:
        OSError: its folders can't be made.
    """

    def __init__(self, config: Config, spec: LearnerSpec, control: Control, api: ApiClient, watchdog: Watchdog) -> None:
        self.config = config
        self.control = control
        self.api = api
        self.folders = Folders.create(config, spec)
        spec = self.spec = keep_keys(
            spec, self.folders.streams, api.store_keys, lambda keys: api.mask.learn(secrets_in(keys))
        )
        if spec.parameters:
            self.folders.parameters.write_text(json.dumps(spec.parameters))
        if spec.identity is not None:
            keep_token(spec.identity, self.folders.identity, api.identity_token, api.mask)
        self.merged_log = self.folders.agent / "training-log.txt"
        self.stall_inspector = StallInspector()
        self.vitals = Vitals(self._wrote, self._dump_stacks, self._saved, self._look)
        self.tunnels = Tunnels(api, watchdog, Profiles(api, spec.learner_id, self._new_profiler))
        self.heartbeat = Heartbeat(api, control, spec.heartbeat_seconds, watchdog.own, self.vitals, self.tunnels.asked)
        reporter = Reporter(api, self.heartbeat)
        self.log = LogShipper(
            api,
            reporter,
            control,
            Spool(self.folders.agent / LOG_SPOOL, api.instance),
            self.merged_log,
            spec.log,
            api.mask,
        )
        self.metrics = LearnerMetrics(
            config,
            spec,
            self.folders,
            reporter,
            api.instance,
            control,
            watchdog,
            self.log.say,
            api.mask,
            self.vitals.step,
        )
        self.checkpoints: Checkpoints | None = None if spec.elastic else self.new_checkpoints(spec)
        """None in an elastic job, unless this learner leads a round."""
        self.job_folder = JobFolder(self.folders.model, config.workdir)
        self.leads = spec.rank == 0
        """Whether this learner's files come first among the results. In an elastic job, the leader of the last round
        leads."""
        self.ran = False
        """Whether the program has started, so that there may be something to store."""
        self.outputs: dict[str, Any] | None = None
        """A summary of the results that become a version of a model, for the report of the end."""
        self.leftovers: dict[str, Any] | None = None
        """A summary of the files that the program has left in the job's folder, likewise."""
        self._venv: Venv | None = None
        self._overlay: Overlay | None = None
        """In use as long as this object lives."""
        self._watchdog = watchdog
        self._output = _ProgramOutput(self)
        self.supervisor = self.new_supervisor(self)
        """The supervisor of the processes that run now, or ran last."""

    def start(self) -> None:
        """Start the parts that run beside the phases."""
        self.heartbeat.start()
        self.log.start()
        self.metrics.start()

    @contextmanager
    def running(self, env: Mapping[str, str]) -> Iterator[None]:
        """While the program runs, with this environment: follow its log files, its metrics, and whether it is idle."""
        tail = LogTail(self.folders.log, self._output)
        tail.start()
        self.job_folder.begin()
        self.metrics.begin(env)
        self.ran = True
        self.vitals.begin()
        self.tunnels.begin(Place(env, self.folders.model, self.sealed))
        try:
            yield
        finally:
            self.tunnels.end()
            self.vitals.end()
            tail.finish()
            self.metrics.finish()

    def make_venv(self, overlay: Overlay | None) -> None:
        """Make the job's own virtual environment, with the packages of an overlay in front of the image's."""
        self._overlay = overlay
        self._venv = make_venv(self.folders.venv, [overlay.folder] if overlay else [])

    @property
    def sealed(self) -> Sealed:
        """The folders that the program shares with others, and must not change or not see."""
        image = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
        folders = [*image, RUNTIME, *([self._overlay.folder] if self._overlay else [])]
        own = [folder for folder in (self.config.workdir, self.config.shared_dir) if folder]
        # Learners that share a machine's GPUs may read each other's memory.
        return Sealed(folders, as_user=self.spec.gpus == 0, hidden=self.config.hidden, own=own)

    def has_package(self, name: str) -> bool:
        """Whether the program's environment has a package, by the name that programs import."""
        return self._venv is not None and self._venv.has(name)

    def new_supervisor(self, listener: Listener) -> Supervisor:
        grace = self.spec.grace_seconds if self.config.grace_seconds is None else self.config.grace_seconds
        return Supervisor(self.control, self._output, self._watchdog, grace, listener)

    def new_checkpoints(self, spec: LearnerSpec) -> Checkpoints:
        """``spec``: this learner's, perhaps with another rank."""
        return Checkpoints(
            lambda: self.store("checkpoints", spec.checkpoints),
            spec,
            self.folders.checkpoint,
            self.folders.agent / "pins",
            silence=lambda: self.heartbeat.silence,
            fenced=lambda: self.control.fenced,
            shared=(lambda: self.store("shared", spec.shared_checkpoints)) if spec.shared_from else None,
        )

    def stopping(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.hurry()

    def store(self, space: str, location: S3Location | None) -> Store:
        """The store at a user's ``location``; None: this job's ``space`` in the installation's own store."""
        return InstallationStore(self.api, space) if location is None else S3Store(location)

    @cached_property
    def address(self) -> str:
        """The address at which peers reach this learner."""
        return self.config.advertise_address or own_address(self.config.api_url)

    def environment(self, plan: Plan) -> dict[str, str]:
        """The environment of the processes of ``plan``."""
        defaults = thread_default(self.spec.cpus, plan.slots) | allocation_default(self.spec.memory)
        if self.spec.learners > 1 or self.spec.elastic is not None:
            defaults |= network_defaults(interface_of(self.address)) | device_default(self.spec)
        return defaults | build_environment(self.spec, self.folders, os.environ, self._venv)

    def _wrote(self) -> bool:
        if self.checkpoints is not None and not self.checkpoints.untouched:
            return True
        return next(files_below(self.folders.result), None) is not None or self.job_folder.has_changed()

    def _saved(self) -> float | None:
        return None if self.checkpoints is None else self.checkpoints.saved_at

    def _new_profiler(self) -> Profiler:
        from weft_trainer.program.profiles import Profiler  # psutil takes 20 ms

        scratch = self.folders.agent / "profile"
        return Profiler(self.folders.profiles, self.folders.collectives, scratch, self._watchdog)

    def _dump_stacks(self, request: str) -> None:
        from weft_trainer.program.stacks import take  # psutil takes 20 ms

        snapshot = take(self._watchdog.own, self.folders.collectives, self.folders.model)
        for text in snapshot.lines:
            self.log.say(text)
        with suppress(TrainerError, Fenced):  # an older API has no such call; the stacks are in the log
            self.api.stacks(request, snapshot.report | {"missing": self.stall_inspector.missing()})

    def _look(self, request: str) -> None:
        from weft_trainer.program.looks import look  # psutil takes 20 ms

        report = look(self._watchdog.own, self.folders.collectives, self.folders.model)
        with suppress(TrainerError, Fenced):
            self.api.stacks(request, report | {"missing": self.stall_inspector.missing()})


class _ProgramOutput:
    """The program's output goes to the log and to the metrics. It is a sign of life, but for Horovod's warnings."""

    def __init__(self, learner: Learner) -> None:
        self._log = learner.log
        self._metrics = learner.metrics
        self._vitals = learner.vitals
        self._stall_inspector = learner.stall_inspector

    def write(self, lines: Sequence[Line]) -> None:
        if self._stall_inspector.read(lines):
            self._vitals.step()
        self._log.write(lines)
        self._metrics.said(lines)

    @property
    def flooded(self) -> bool:
        # Regular expressions are for every line, so then all of them are made.
        return self._log.flooded and not self._metrics.reads_log

    def leave_out(self, raw: bytes) -> None:
        self._log.leave_out(raw)

    @property
    def last_lines(self) -> list[str]:
        return self._log.last_lines
