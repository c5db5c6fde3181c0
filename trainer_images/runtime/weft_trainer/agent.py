"""The sequence of a learner's life: start grant, peers, downloads, the program, storing, the report of its end."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from weft_trainer.api import ApiClient
from weft_trainer.cache import NodeCache
from weft_trainer.checkpoints import Checkpoints
from weft_trainer.config import Config, derive_secret
from weft_trainer.control import Control
from weft_trainer.download import PATIENCE, Downloader, count
from weft_trainer.elastic import ElasticTraining, Tools
from weft_trainer.endings import STOPPED, Ending
from weft_trainer.environment import build_environment, network_defaults, thread_default
from weft_trainer.errors import ApiError, DataError, Fenced, Stopped, TrainerError
from weft_trainer.exit_report import report_exit
from weft_trainer.folders import Folders, agent_folder
from weft_trainer.heartbeat import Heartbeat
from weft_trainer.launchers import find_launcher
from weft_trainer.launchers.base import Peer, Plan
from weft_trainer.lines import Line
from weft_trainer.listing import summary
from weft_trainer.logs import LogShipper
from weft_trainer.metrics.learner import SPOOL, LearnerMetrics
from weft_trainer.mounts import copy_results, link
from weft_trainer.network import ReservedPorts, interface_of, own_address
from weft_trainer.own_model import bring_model
from weft_trainer.own_store import OwnStore
from weft_trainer.paths import files_below
from weft_trainer.patience import patiently
from weft_trainer.processes import become_reaper
from weft_trainer.results import Results
from weft_trainer.s3 import S3Store
from weft_trainer.shipping import send_leftover
from weft_trainer.spec import LearnerSpec, S3Location, parse_spec
from weft_trainer.spool import Spool, has_leftover
from weft_trainer.stored import Store
from weft_trainer.supervisor import Supervisor
from weft_trainer.tail import LogTail
from weft_trainer.vitals import Vitals
from weft_trainer.watchdog import Watchdog

_PORTS = 5
"""Four for the launchers, and the last for the program itself."""
_PEERS_WAIT = 10.0
_STORING_PATIENCE = 600.0
"""Seconds that a store may be away while results wait to go there."""
_STOPPING_PATIENCE = 30.0
_REPORT_SECONDS = 3600.0
"""How long log and exit report wait for an API that is away."""
_STOPPING_REPORT_SECONDS = 60.0
_GRANT_PAUSES = (0.05, 0.1, 0.2, 0.5)


class Agent:
    def __init__(self, config: Config, control: Control, watchdog: Watchdog) -> None:
        self._config = config
        self._control = control
        self._watchdog = watchdog
        self._api = ApiClient(config.api_url, config.token, config.rank, str(uuid.uuid4()), control)

    def run(self) -> int:
        """The agent's exit code."""
        if self._config.leftovers:
            return self._stand_aside()
        become_reaper()
        try:
            spec = self._control.run(self._grant)
        except Stopped:
            return self._report_early(STOPPED)
        except Fenced:
            self._stand_aside()
            raise
        except ApiError as error:
            if error.code == "already_granted" or error.status == 409:
                return self._stand_aside()
            raise
        try:
            learner = Learner(self._config, self._control, self._watchdog, self._api, spec)
        except OSError as error:
            return self._report_early(Ending(1, f"the learner's folders can't be made: {error}"))
        return learner.run()

    def _grant(self) -> LearnerSpec:
        spec = replace(
            parse_spec(self._api.start(socket.gethostname())), gang_secret=derive_secret(self._config.token, "gang")
        )
        if spec.rank != self._config.rank:
            raise TrainerError(
                f"the API's spec is for rank {spec.rank}, this learner was started as {self._config.rank}"
            )
        return spec

    def _report_early(self, ending: Ending) -> int:
        report_exit(self._api, self._config.rank, ending, [], _STOPPING_REPORT_SECONDS)
        return ending.exit_code

    def _stand_aside(self) -> int:
        """Another agent was this learner. If it died here, what it left of its log and metrics is still wanted."""
        for name, send in (("spool", partial(self._api.logs, late=True)), (SPOOL, self._api.metrics)):
            folder = agent_folder(self._config.workdir) / name
            if has_leftover(folder):
                try:
                    send_leftover(Spool(folder, self._api.instance), send)
                except (ApiError, Fenced) as error:
                    _warn(f"what an agent that died has left in {name} is refused: {error or 'the attempt is over'}")
        return 0


class Learner:
    """One granted learner."""

    def __init__(self, config: Config, control: Control, watchdog: Watchdog, api: ApiClient, spec: LearnerSpec) -> None:
        self._config = config
        self._control = control
        self._api = api
        self._spec = spec
        self._folders = Folders.create(config, spec)
        self._merged_log = self._folders.agent / "training-log.txt"
        self._watchdog = watchdog
        self._vitals = Vitals(self._wrote, self._dump_stacks)
        self._heartbeat = Heartbeat(api, control, spec.heartbeat_seconds, watchdog.own, self._vitals)
        spool = Spool(self._folders.agent / "spool", api.instance)
        self._logs = LogShipper(api, control, spool, self._merged_log, spec.log)
        self._metrics = LearnerMetrics(config, spec, self._folders, api, control, watchdog, self._say)
        # Regular expressions are for every line, so then all of them are made.
        self._flood = None if self._metrics.reads_log else self._logs
        self._tail = LogTail(self._folders.log, self._said, self._flood)
        self._supervisor = self._new_supervisor()
        self._checkpoints: Checkpoints | None = None
        self._ports = ReservedPorts(_PORTS)
        self._processing = False
        self._inputs: dict[str, dict[str, Any]] = {}
        self._outputs: dict[str, Any] | None = None
        self._message: str | None = None
        self._origin: dict[str, Any] | None = None
        """The checkpoint that this learner begins with."""

    def run(self) -> int:
        """The agent's exit code. Raises: Fenced, with no process left and nothing stored."""
        self._heartbeat.start()
        self._logs.start()
        self._metrics.start()
        try:
            ending = self._ended(self._train)
            if self._processing:
                before = ending
                ending = self._ended(lambda: self._save(before))
            return self._report(ending)
        finally:
            self._supervisor.end_helpers()

    def _ended(self, work: Callable[[], Ending]) -> Ending:
        """The ending that ``work`` comes to, whatever happens: somebody waits for this learner's report."""
        try:
            return work()
        except Fenced:
            raise
        except Stopped:
            return STOPPED
        except TrainerError as error:
            return Ending(1, error.with_code())
        except Exception as error:
            traceback.print_exc()
            return Ending(1, f"the learner's agent failed: {type(error).__name__}: {error}")

    def _train(self) -> Ending:
        if self._spec.elastic is None:
            return self._process(self._control.run(self._prepare))
        training = ElasticTraining(
            Tools(
                spec=self._spec,
                control=self._control,
                api=self._api,
                folder=self._folders.model,
                prepare=self._prepare_alone,
                begin=self._begin,
                environment=self._environment,
                supervisor=self._new_supervisor,
                checkpoints=self._new_checkpoints,
                hold=self._hold,
                say=lambda line: self._logs.write([Line(int(time.time() * 1000), line)]),
                last_lines=lambda: self._logs.last_lines,
            )
        )
        try:
            return training.run()
        finally:
            self._vitals.end()
            if self._processing:
                self._tail.finish()
                self._metrics.finish()

    def _new_supervisor(
        self,
        regroup: Callable[[], bool] = lambda: False,
        on_failure: Callable[[Ending], None] = lambda ending: None,
    ) -> Supervisor:
        grace = self._spec.grace_seconds if self._config.grace_seconds is None else self._config.grace_seconds
        return Supervisor(
            self._control,
            self._said,
            lambda: self._logs.last_lines,
            self._watchdog,
            grace,
            on_stop=self._hurry,
            regroup=regroup,
            on_failure=on_failure,
            flood=self._flood,
        )

    # --- before the program ---

    def _prepare_alone(self) -> str:
        """All but the meeting with the others, for an elastic job."""
        self._look_up_results()
        self._message = self._download() if self._spec.has_downloads else None
        return self._address

    def _begin(self) -> None:
        self._api.phase("PROCESSING", self._message, self._inputs)
        self._tail.start()
        self._metrics.begin(build_environment(self._spec, self._folders, os.environ))
        self._processing = True
        self._vitals.begin()

    def _hold(self, supervisor: Supervisor, checkpoints: Checkpoints | None) -> None:
        self._supervisor, self._checkpoints = supervisor, checkpoints

    def _prepare(self) -> Plan:
        """Runs in a thread, so that a stop need not wait for a download."""
        launcher = find_launcher(self._spec.launcher)
        address = self._address
        self._api.address(address, self._ports.numbers)
        self._look_up_results()
        message = self._download() if self._spec.has_downloads else None
        me = Peer(self._spec.rank, address, self._ports.numbers)
        plan = launcher.plan(self._spec, me, self._meet(me))
        self._api.phase("PROCESSING", message, self._inputs, self._origin)
        return plan

    def _look_up_results(self) -> None:
        """A mistyped name of the store for the results shows now, and not after the training."""
        if self._spec.results is not None:
            try:
                patiently(S3Store(self._spec.results).resolve, PATIENCE, beginning=True)
            except DataError as error:
                error.error_code = "S303"
                raise

    def _download(self) -> str:
        self._api.phase("DOWNLOADING")
        cache = NodeCache(self._config.cache_dir, self._config.cache_size)
        downloader = Downloader(cache, _warn, say=self._say)
        report = downloader.run(self._spec, self._folders)
        self._inputs = downloader.inputs
        if self._spec.mounts:
            report = "; ".join(filter(None, [report, link(self._spec.mounts, self._folders.data)]))
        model = self._spec.model
        if model is not None and self._spec.pretrained is None:
            files = bring_model(OwnStore(self._api, "pretrained"), model, cache, self._folders.pretrained, self._say)
            self._inputs["pretrained"] = summary(files, etags=False)
            report = "; ".join(filter(None, [report, f"{count(len(files))} of model {model.reference}"]))
        if self._spec.may_have_checkpoints and self._spec.elastic is None:  # elsewhere each round does so
            restored = self._checkpoint_store().restore(PATIENCE)
            self._origin = restored.origin
            report = "; ".join(filter(None, [report, restored.words(self._spec.job_id)]))
        return report

    def _meet(self, me: Peer) -> list[Peer]:
        """All learners, once all are there: a gang starts as one."""
        if self._spec.learners == 1:
            return [me]
        while (peers := self._api.peers(_PEERS_WAIT)) is None:
            pass
        return peers

    # --- the program ---

    def _process(self, plan: Plan) -> Ending:
        env = self._environment(plan) | {"WEFT_PORT": str(self._ports.numbers[-1])}
        self._tail.start()
        self._metrics.begin(env)
        self._checkpoint_store().start()
        self._ports.release()
        self._processing = True
        self._vitals.begin()
        try:
            return self._supervisor.run(plan, self._spec.command, env, self._folders.model)
        finally:
            self._vitals.end()
            self._tail.finish()
            self._metrics.finish()

    @cached_property
    def _address(self) -> str:
        return self._config.advertise_address or own_address(self._config.api_url)

    def _environment(self, plan: Plan) -> dict[str, str]:
        spec = self._spec
        defaults = thread_default(spec.cpus, plan.slots)
        if spec.learners > 1 or spec.elastic is not None:
            defaults |= network_defaults(interface_of(self._address))
        return defaults | build_environment(spec, self._folders, os.environ)

    def _said(self, lines: Sequence[Line]) -> None:
        if lines:
            self._vitals.touch()
        self._logs.write(lines)
        self._metrics.said(lines)

    def _wrote(self) -> bool:
        if self._checkpoints is not None and not self._checkpoints.untouched:
            return True
        return next(files_below(self._folders.result), None) is not None

    def _dump_stacks(self) -> None:
        from weft_trainer.stacks import dump  # psutil takes 20 ms

        for text in dump(self._watchdog.own):
            self._say(text)

    def _say(self, text: str) -> None:
        self._logs.write([Line(int(time.time() * 1000), text)])

    def _hurry(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.hurry()

    def _checkpoint_store(self) -> Checkpoints:
        if self._checkpoints is None:
            self._checkpoints = self._new_checkpoints(self._spec)
        return self._checkpoints

    def _new_checkpoints(self, spec: LearnerSpec) -> Checkpoints:
        return Checkpoints(
            lambda: self._store("checkpoints", spec.checkpoints),
            spec,
            self._folders.checkpoint,
            self._folders.agent / "pins",
            silence=lambda: self._heartbeat.silence,
            fenced=lambda: self._control.fenced,
        )

    # --- after the program ---

    def _save(self, ending: Ending) -> Ending:
        ending = self._save_checkpoint(ending)
        self._logs.close_file()
        self._folders.put_code()
        self._folders.put_log(self._merged_log, self._spec.learner_id)
        return self._store_results(ending)

    def _report(self, ending: Ending) -> int:
        seconds = _STOPPING_REPORT_SECONDS if self._control.stop_requested else _REPORT_SECONDS
        if not self._metrics.flush(seconds):
            _warn("the last metrics did not reach the API")
        if not self._logs.flush(seconds):
            _warn("the last log lines did not reach the API")
        if self._control.fenced:
            raise Fenced
        self._heartbeat.stop()
        report_exit(self._api, self._spec.rank, ending, self._logs.last_lines, seconds, self._outputs)
        return ending.exit_code

    def _save_checkpoint(self, ending: Ending) -> Ending:
        if self._checkpoints is None:
            return ending
        try:
            self._checkpoints.finish(ending.killed_at, self._patience, ending.cut_off)
        except (TrainerError, OSError) as error:
            _warn(f"the last checkpoint was not stored: {error}")
            if ending.exit_code != 0:
                return replace(ending, reason=f"{ending.reason} (the last checkpoint was not stored: {error})")
        return ending

    def _store_results(self, ending: Ending) -> Ending:
        """Ask for the grant, then store; of a learner that failed or was stopped, as much as works."""
        granted, ending = self._storing_grant(ending)
        # Until now other learners may have needed the helpers.
        self._supervisor.end_helpers()
        if not granted:
            return ending
        try:
            store = self._store("results", self._spec.results)
            results = Results(store, self._spec, lambda: self._patience, lambda: self._control.fenced)
            # Of an elastic job, no learner knows whose results there will be.
            complete = ending.exit_code == 0 and self._spec.elastic is None
            results.put(self._folders.result, self._config.workdir, complete=complete)
            if self._spec.results_folder is not None:
                copy_results(self._folders.result, self._config.workdir, self._spec.results_folder)
            if self._spec.registers and self._spec.rank == 0 and ending.exit_code == 0:
                stored = patiently(store.list, self._patience)
                self._outputs = summary((one for one in stored if not one.key.endswith("/")), etags=False)
        except (TrainerError, OSError) as error:
            if ending.exit_code == 0:
                return Ending(1, f"S303 results can't be stored: {error}")
            _warn(f"partial results were not stored: {error}")
            return replace(ending, reason=f"{ending.reason} (partial results were not stored: {error})")
        return ending

    def _storing_grant(self, ending: Ending) -> tuple[bool, Ending]:
        """Waits until the other learners have ended well too; a stop meanwhile means that one did not."""
        pauses = iter(_GRANT_PAUSES)
        pause = 0.0
        while True:
            answer = self._api.storing(ending.exit_code)
            if answer["granted"] or not answer.get("wait"):
                return bool(answer["granted"]), ending
            pause = next(pauses, pause)
            self._control.sleep(pause)
            if self._control.fenced:
                raise Fenced
            if self._control.stop_requested and ending.exit_code == 0:
                ending = STOPPED

    def _store(self, space: str, location: S3Location | None) -> Store:
        if location is None:
            return OwnStore(self._api, space)
        return S3Store(location)

    @property
    def _patience(self) -> float:
        return _STOPPING_PATIENCE if self._control.stop_requested else _STORING_PATIENCE


def _warn(message: str) -> None:
    print(f"weft_trainer: {message}", file=sys.stderr, flush=True)
