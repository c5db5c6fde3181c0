"""The run: the service's decisions about a job (weft_core.lifecycle), performed here and in memory."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from weft_core.engine import LearnerObservation, LearnerState, Observation
from weft_core.launch import BundleInput, LaunchSpec, LearnerSpec, LeftoverSpec, RepositoryInput
from weft_core.lifecycle.actions import (
    SHORT_GRACE,
    Admit,
    Advance,
    Close,
    HaltQueued,
    Launch,
    Notice,
    Pause,
    SearchExits,
    Settle,
)
from weft_core.lifecycle.deadlines import POLL
from weft_core.lifecycle.decide import conclude, confirmed_gone, decide
from weft_core.lifecycle.notes import take_notes
from weft_core.lifecycle.progress import judge_stall
from weft_core.lifecycle.states import TERMINAL, JobState, Outcome
from weft_core.lifecycle.view import AttemptView, View
from weft_core.manifest import Manifest
from weft_core.settings import TimingSettings
from weft_core.words import count
from weft_embedded.run.data_dir import LinkedData
from weft_embedded.run.engine import EngineProcess
from weft_embedded.run.folder import OutFolder
from weft_embedded.run.learners import Gang
from weft_embedded.run.memory import Clock, Memory
from weft_embedded.run.mlflow import MlflowStores
from weft_embedded.run.server import LearnerServer
from weft_embedded.run.stores import Stores

Tell = Callable[..., None]
_MLFLOW_SECONDS = 1.0
"""Seconds between two reads of the files of MLflow's client."""


@dataclass(frozen=True)
class Stop:
    """Somebody asks for the run's end."""

    grace: float
    reason: str = ""
    """Empty: the user's own request."""


@dataclass(frozen=True)
class Ended:
    """How the run ended."""

    state: JobState
    reason: str
    exit_code: int | None = None


@dataclass(frozen=True)
class Job:
    """The job that is to be run."""

    manifest: Manifest
    stores: Stores
    data: LinkedData
    secrets: dict[str, str]
    code: BundleInput | None
    overlay: BundleInput | None
    timings: TimingSettings
    leftover_bytes: int
    repo: RepositoryInput | None = None
    mlflow: MlflowStores | None = None
    """None: the manifest names another server."""

    def spec(self, out: OutFolder, attempt: int) -> LearnerSpec:
        manifest, stores = self.manifest, self.stores
        here = {"PRETRAINED_DIR": str(stores.pretrained)} if isinstance(stores.pretrained, Path) else {}
        if stores.model:
            here["PRETRAINED_MODEL"] = stores.model
        results = stores.results
        if results is not None:
            prefix = "/".join(part for part in (results.prefix, out.id) if part)
            results = results.model_copy(update={"prefix": prefix})
        return LearnerSpec(
            job_id=out.id,
            job_name=manifest.name,
            attempt=attempt,
            rank=0,
            learners=manifest.learners,
            cpus=manifest.resources.cpus,
            gpus=manifest.resources.gpus,
            memory=manifest.resources.memory,
            extra=dict(manifest.resources.extra),
            command=manifest.command,
            framework=manifest.framework.name,
            launcher=manifest.framework.launcher,
            env=manifest.variables | self.secrets | here,
            parameters=manifest.parameters,
            secrets=sorted(self.secrets),
            code=self.code,
            repo=self.repo,
            overlay=self.overlay,
            data=stores.inputs,
            pretrained=None if isinstance(stores.pretrained, Path) else stores.pretrained,
            results=results,
            checkpoint=manifest.checkpoint,
            leftovers=LeftoverSpec(results=manifest.results, keep=manifest.keep_leftovers, bytes=self.leftover_bytes),
            grace_seconds=self.timings.grace,
            heartbeat_seconds=self.timings.heartbeat,
            max_runtime_seconds=manifest.max_runtime_seconds,
            evaluation_metrics=manifest.evaluation_metrics,
            system_metrics_seconds=0,
        )


def run(job: Job, out: OutFolder, server: LearnerServer, news: queue.SimpleQueue[Any], tell: Tell) -> Ended:
    """Attempts, as many as the manifest's ``retries`` allow.

    Args:
        job: the job to run.
        out: taken.
        server: serving.
        news: gets :class:`Stop` at any time; used for the run's own news, too.
        tell: called with (type, fields) for each event to show.
    """
    return Run(job, out, server, news, tell).to_end()


class Run:
    """Does what a worker does with a job, for this job alone. The arguments are those of :func:`run`.

    Args:
        start: starts the gang of a launch spec, and passes on its news, as :class:`EngineProcess` does.
        clock: the time of day.
    """

    def __init__(
        self,
        job: Job,
        out: OutFolder,
        server: LearnerServer,
        news: queue.SimpleQueue[Any],
        tell: Tell,
        start: Callable[[LaunchSpec, Callable[[dict[str, Any]], None]], EngineProcess] = EngineProcess,
        clock: Clock | None = None,
    ) -> None:
        self._job = job
        self._out = out
        self._server = server
        self._news = news
        self._tell_run = tell
        self._start = start
        self._clock = clock or Clock()
        out.begin(out.attempts)  # it has an id from now on
        self.memory = Memory(out.id, job.manifest, job.timings, self._clock)
        self._engine: EngineProcess | None = None
        self._launch_spec: LaunchSpec | None = None
        self._folders: list[Path] = []
        self._folders_known = threading.Event()
        self._stopped: Stop | None = None
        self._mlflow_read = 0.0

    def to_end(self) -> Ended:
        """Step until the job has ended."""
        memory = self.memory
        try:
            while memory.state not in TERMINAL:
                self.step()
        finally:
            self._end_engine()
        reason = memory.reason
        if memory.state is JobState.HALTED and self._stopped is not None and self._stopped.reason:
            reason = self._stopped.reason
        return Ended(memory.state, reason, memory.attempt.exit_code if memory.attempt else None)

    def step(self) -> None:
        """Decide and act once; at most wait for news."""
        if time.monotonic() - self._mlflow_read >= _MLFLOW_SECONDS:
            self._read_mlflow()
        view = self.memory.view()
        action = decide(view)
        self._note(view)
        match action:
            case Pause(seconds):
                self._wait(min(seconds, POLL))  # nothing else observes the engine
            case SearchExits(ranks):
                # A learner's reports come to this very process: there is no other place for them.
                self.memory.found(dict.fromkeys(ranks))
            case Admit():
                self._begin()
            case Launch():
                self._launch()
            case Advance():
                self._enter(action.state, action.reason)
            case Notice():
                self._notice(action)
            case Settle():
                self._settle(action)
            case Close():
                self._close(action)
            case HaltQueued():
                self._enter(JobState.HALTED, action.reason)
            case _:  # of an elastic job, or one that is deleted: neither can be here
                raise AssertionError(f"a run has no such action: {action}")

    # --- an attempt, from its launch until nothing of it is left ---

    def _begin(self) -> None:
        out, manifest = self._out, self._job.manifest
        out.begin(out.attempts + 1)
        run_name = f"weft-{out.id}-{out.attempts}"
        attempt = AttemptView(id=run_name, n=out.attempts, run_name=run_name, memory=manifest.resources.memory)
        token = secrets.token_urlsafe(32)
        spec = self._job.spec(out, attempt.n)
        gang = Gang(spec, self._tell, self._prepare, lambda: self._news.put({}), out.metrics, self._clock)
        self._server.serve(gang, token)
        self._launch_spec = LaunchSpec(
            run_name=run_name,
            installation=out.id,
            project_id="local",
            job_id=out.id,
            attempt=attempt.n,
            learners=manifest.learners,
            resources=manifest.resources,
            image=manifest.framework.image,
            api_url=self._server.url,
            token=token,
        )
        self._folders_known.clear()
        if self._job.mlflow:
            self._job.mlflow.begin(attempt.n)
        self.memory.begin(attempt, gang)
        self._enter(JobState.PENDING, f"starting {count(manifest.learners, 'learner')} on this machine")

    def _launch(self) -> None:
        assert self._launch_spec is not None
        self._engine = self._start(self._launch_spec, partial(self._hear, self._launch_spec.attempt))
        self.memory.launched()

    def _settle(self, settle: Settle) -> None:
        """From here on heartbeats answer 'stop', and the next step stops what is left."""
        assert self.memory.gang is not None
        self.memory.settle(settle)
        self.memory.gang.stop(settle.grace)

    def _close(self, close: Close) -> None:
        """Stop what is left; when nothing is, the job goes on or ends."""
        memory, engine = self.memory, self._engine
        view = memory.view()
        if engine is not None and not engine.over:
            engine.stop(close.grace)
            seen = view.sighting.observation if view.sighting else None
            if view.sighting is None or not confirmed_gone(view, seen, close.grace):
                self._wait(close.seconds)
                return
        self._end_engine()
        self._read_mlflow()
        conclusion = conclude(memory.view())
        interrupted = memory.attempt is not None and memory.attempt.outcome is Outcome.INTERRUPTED
        memory.end(conclusion)
        if memory.state is JobState.QUEUED and interrupted:
            # A `weft down` of this home ends its runs, too: nothing would start them again.
            memory.enter(JobState.HALTED, memory.attempt.reason if memory.attempt else "")
        elif memory.state is JobState.QUEUED:
            self._tell("event", kind="state", state=memory.state.value, message=memory.reason)

    def _read_mlflow(self) -> None:
        """Take over what the attempt has logged with MLflow's client since the last call."""
        gang, stores = self.memory.gang, self._job.mlflow
        self._mlflow_read = time.monotonic()
        if gang is None or stores is None:
            return
        try:
            for learner, records in stores.read():
                gang.measured(learner, records)
        except OSError as error:  # no training ends for its metrics
            self._tell("event", kind="warning", message=f"metrics of MLflow are left out: {error}")

    def _end_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        engine.close()
        if engine.broken:
            # Somebody has killed it, and its learners live on. Another engine process adopts the run, and ends it.
            assert self._launch_spec is not None
            self._start(self._launch_spec, lambda news: None).close()

    # --- news, in and out ---

    def _hear(self, attempt: int, news: dict[str, Any]) -> None:
        """The engine's news, on a thread of its own. A learner's start waits for the folders with the gang's lock, so
        they don't go through the queue."""
        if "folders" in news:
            self._folders = [Path(path) for path in news["folders"]]
        if news.keys() & {"folders", "broken", "refused", "gone"}:
            self._folders_known.set()
        self._news.put((attempt, news))

    def _wait(self, seconds: float) -> None:
        """Wait for news, for at most ``seconds``."""
        try:
            news = self._news.get(timeout=seconds)
        except queue.Empty:
            return
        while True:
            if isinstance(news, Stop):
                self._stopped = self._stopped or news
                self.memory.halt(news.grace)
            elif isinstance(news, tuple) and news[0] == self._out.attempts:
                self._learn(news[1])
            try:
                news = self._news.get_nowait()
            except queue.Empty:
                return

    def _learn(self, news: dict[str, Any]) -> None:
        """Take in a report of the open attempt's engine."""
        memory = self.memory
        if "note" in news:
            self._tell("event", kind="note", message=news["note"])
        if "seen" in news:
            memory.answered(_observation(news["seen"]))
        if "gone" in news:
            memory.answered(None)
        if "unreachable" in news:
            memory.silent(news["unreachable"])
        broken = f"the local engine ended: {news['broken']}" if "broken" in news else ""
        why = news.get("refused") or broken
        if why and memory.attempt is not None and memory.attempt.outcome is None:
            self._settle(Settle(Outcome.FAILED, why, SHORT_GRACE, news.get("code") or "S101"))

    def _note(self, view: View) -> None:
        notes = take_notes(view)
        if notes.condition != view.job.condition:
            what = notes.condition or f"no longer: {view.job.condition}"
            self._tell("event", kind="condition", message=what)
        if notes.progress:
            self._tell("event", kind="image", message=notes.progress)
        self.memory.note(notes)

    def _notice(self, notice: Notice) -> None:
        """Show the warning, and remember it; heartbeats ask for stacks as long as the gang is stalled."""
        memory = self.memory
        assert memory.gang is not None
        if notice.what == "judge":
            reports = {learner.rank: learner.stacks for learner in memory.gang.snapshot()}
            verdict, notice = judge_stall(memory.view(), reports)
            memory.judged(verdict)
            if notice.message:
                self._tell("event", kind="warning", message=notice.message)
            return
        since = notice.since if notice.what == "stalled" else None
        memory.warned(stalled_since=since, no_output=notice.what == "no_output")
        if notice.what != "no_output":
            memory.gang.ask_for_stacks(since)
        if notice.message:
            self._tell("event", kind="warning", message=notice.message)

    def _enter(self, state: JobState, reason: str) -> None:
        self.memory.enter(state, reason)
        self._tell("event", kind="state", state=state.value, message=reason)

    def _prepare(self, rank: int) -> Mapping[str, str]:
        """A learner's agent has come, and its folder exists by now. Returns the variables for its environment."""
        self._folders_known.wait()
        if rank >= len(self._folders):
            raise OSError("the local engine has ended")
        mlflow = self._job.mlflow.environment(rank) if self._job.mlflow else {}
        try:
            return {**mlflow, **self._job.data.place(self._folders[rank], rank, self._server.data_url)}
        except OSError as error:
            raise OSError(f"DATA_DIR can't be made: {error}") from error

    def _tell(self, what: str, /, **fields: Any) -> None:
        self._tell_run(what, attempt=self._out.attempts, **fields)


def _observation(seen: Mapping[str, Any]) -> Observation:
    learners = [
        LearnerObservation(**learner | {"state": LearnerState(learner["state"])}) for learner in seen["learners"]
    ]
    return Observation(
        seen["run_name"],
        {learner.rank: learner for learner in learners},
        progress=seen["progress"],
        failed=seen["failed"],
        failed_code=seen["failed_code"],
    )
