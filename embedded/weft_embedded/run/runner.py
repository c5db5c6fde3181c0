"""The run: attempt after attempt, until one has ended well, or none is left."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_core.launch import CodeInput, LaunchSpec, LearnerSpec
from weft_core.lifecycle.states import JobState
from weft_core.manifest import Manifest
from weft_embedded.run.data_dir import LinkedData
from weft_embedded.run.engine import EngineProcess
from weft_embedded.run.folder import OutFolder
from weft_embedded.run.learners import Gang, Refused, count
from weft_embedded.run.server import LearnerServer
from weft_embedded.run.stores import Stores

_GANG_GRACE = 30.0
"""Of learners whose gang has failed: enough to save a checkpoint, but they may hang in a collective for ever."""
_REPORT_SECONDS = 5.0
"""How long a learner that has gone may still be heard: its last call may be on its way."""

Tell = Callable[..., None]


@dataclass(frozen=True)
class Stop:
    """Somebody asks for the run's end."""

    grace: float
    reason: str = "halted by request"


@dataclass(frozen=True)
class Ended:
    """How an attempt, or the run, ended."""

    state: JobState
    reason: str
    exit_code: int | None = None
    retryable: bool = False


@dataclass(frozen=True)
class Job:
    """What is to be run."""

    manifest: Manifest
    stores: Stores
    data: LinkedData
    secrets: dict[str, str]
    code: CodeInput | None
    grace: float

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
            command=manifest.framework.command,
            framework=manifest.framework.name,
            launcher=manifest.framework.launcher,
            env=manifest.env | self.secrets | here,
            code=self.code,
            data=stores.inputs,
            pretrained=None if isinstance(stores.pretrained, Path) else stores.pretrained,
            results=results,
            checkpoint=manifest.checkpoint,
            grace_seconds=self.grace,
            max_runtime_seconds=manifest.max_runtime_seconds,
            evaluation_metrics=manifest.evaluation_metrics,
            system_metrics_seconds=0,
        )


def run(job: Job, out: OutFolder, server: LearnerServer, stops: queue.SimpleQueue[Any], tell: Tell) -> Ended:
    """Attempts, as many as the manifest's ``retries`` allow.

    Args:
        job: what is to be run.
        out: taken.
        server: serving.
        stops: gets :class:`Stop` at any time; used for the attempts' own news, too.
        tell: called with (type, fields) for what is worth showing.
    """
    failures = 0
    while True:
        out.begin(out.attempts + 1)
        ended = _Attempt(job, out, server, stops, tell).run()
        if ended.state is not JobState.FAILED or not ended.retryable or failures >= job.manifest.retries:
            return ended
        failures += 1
        message = f"retry {failures} of {job.manifest.retries} after: {ended.reason}"
        tell("event", kind="state", state=JobState.QUEUED.value, message=message)


class _Attempt:
    """One gang, from its launch until nothing of it is left."""

    def __init__(
        self, job: Job, out: OutFolder, server: LearnerServer, news: queue.SimpleQueue[Any], tell: Tell
    ) -> None:
        self._job = job
        self._out = out
        self._server = server
        self._news = news
        self._n = out.attempts
        self._tell_run = tell
        self._folders: list[Path] = []
        self._folders_known = threading.Event()
        self._ended: Ended | None = None
        self._deadline: float | None = None  # of max_runtime
        self._gone_quiet: dict[int, tuple[float, dict[str, Any]]] = {}
        """Learners whose processes are gone and that have not reported: since when, and what their engine says."""

    def run(self) -> Ended:
        manifest = self._job.manifest
        token = secrets.token_urlsafe(32)
        spec = self._job.spec(self._out, self._n)
        gang = Gang(spec, self._tell, self._prepare, lambda rank: self._news.put({"reported": rank}), self._out.metrics)
        self._server.serve(gang, token)
        run_name = f"weft-{self._out.id}-{self._n}"
        what = f"starting {count(manifest.learners)} on this machine"
        self._tell("event", kind="state", state=JobState.PENDING.value, message=what)
        launch = LaunchSpec(
            run_name=run_name,
            installation=self._out.id,
            project_id="local",
            job_id=self._out.id,
            attempt=self._n,
            learners=manifest.learners,
            resources=manifest.resources,
            image=manifest.framework.image,
            api_url=self._server.url,
            token=token,
        )
        with self._engine(launch) as engine:
            return self._until_gone(gang, engine)

    @contextlib.contextmanager
    def _engine(self, launch: LaunchSpec) -> Iterator[EngineProcess]:
        # Its first news may come before it is known here, so they go through the queue like all others.
        engine = EngineProcess(launch, self._news.put)
        try:
            yield engine
        finally:
            engine.close()
            if engine.broken:
                # Somebody has killed it, and its learners live on: another one adopts the run, and ends it.
                EngineProcess(launch, lambda news: None).close()

    def _until_gone(self, gang: Gang, engine: EngineProcess) -> Ended:
        while True:
            try:
                one = self._news.get(timeout=0.5)
            except queue.Empty:
                one = {}
            if isinstance(one, Stop):
                self._stop(gang, engine, Ended(JobState.HALTED, one.reason), one.grace)
                continue
            if "folders" in one:
                self._folders = [Path(path) for path in one["folders"]]
                self._folders_known.set()
            if "note" in one:
                self._tell("event", kind="note", message=one["note"])
            if "progress" in one:
                self._tell("event", kind="image", message=one["progress"])
            if why := one.get("refused") or one.get("failed"):
                self._stop(gang, engine, Ended(JobState.FAILED, why), 0)
            if "broken" in one:
                self._ended = self._ended or Ended(JobState.FAILED, f"the local engine ended: {one['broken']}")
                return self._ended
            for gone in one.get("exits", ()):
                self._gone_quiet.setdefault(gone["rank"], (time.monotonic(), gone))
            self._judge(gang, engine, everything="gone" in one)
            if one.keys() & {"gone", "refused"}:
                assert self._ended is not None
                return self._ended

    def _judge(self, gang: Gang, engine: EngineProcess, everything: bool) -> None:
        """Decide how the attempt ends, once that is clear; the others of a gang that has failed are stopped."""
        if self._ended is not None:
            return
        manifest = self._job.manifest
        failed = next((one for one in gang.learners if one.exited and one.exit_code), None)
        if failed is not None:
            reason = failed.reason or f"exit code {failed.exit_code}"
            subject = f"learner {failed.rank + 1}"
            joint = f"{subject} was {reason}" if reason.startswith("killed") else f"{subject}: {reason}"
            self._stop(gang, engine, Ended(JobState.FAILED, joint, failed.exit_code, retryable=True), self._gang_grace)
        elif gang.succeeded:
            self._ended = Ended(JobState.COMPLETED, "completed", 0)
        elif silent := self._silent(gang, everything):
            what = f"learner {silent['rank'] + 1}: {silent['reason'] or 'its process vanished'}"
            state = JobState.HALTED if silent["interrupted"] else JobState.FAILED
            self._stop(gang, engine, Ended(state, what, silent["exit_code"], retryable=True), self._gang_grace)
        elif everything:
            self._ended = Ended(JobState.FAILED, "the learners are gone", retryable=True)
        elif self._overdue(gang):
            limit = manifest.max_runtime_seconds
            self._stop(gang, engine, Ended(JobState.FAILED, f"max_runtime of {limit:g} s exceeded"), self._job.grace)

    def _silent(self, gang: Gang, everything: bool) -> dict[str, Any] | None:
        """A learner that is gone without a word."""
        for rank, (since, how) in self._gone_quiet.items():
            late = everything or time.monotonic() - since > _REPORT_SECONDS or gang.learners[rank].instance is None
            if not gang.learners[rank].exited and late:
                return how
        return None

    def _overdue(self, gang: Gang) -> bool:
        limit = self._job.manifest.max_runtime_seconds
        if limit and self._deadline is None and all(one.instance is not None for one in gang.learners):
            self._deadline = time.monotonic() + limit
        return self._deadline is not None and time.monotonic() > self._deadline

    def _stop(self, gang: Gang, engine: EngineProcess, why: Ended, grace: float) -> None:
        self._ended = self._ended or why
        gang.stop(grace)
        engine.stop(grace)

    @property
    def _gang_grace(self) -> float:
        return min(self._job.grace, _GANG_GRACE)

    def _prepare(self, rank: int) -> Mapping[str, str]:
        """A learner's agent has come, and its folder is there by now; what its environment needs."""
        while not self._folders_known.wait(timeout=0.5):
            if self._ended is not None:
                raise Refused(410, "stale_attempt", "the run has ended: stop and exit")
        try:
            return self._job.data.place(self._folders[rank], rank, self._server.data_url)
        except (OSError, IndexError) as error:
            self._news.put({"failed": f"DATA_DIR can't be made: {error}"})
            raise Refused(410, "stale_attempt", "the learner can't start: stop and exit") from None

    def _tell(self, what: str, /, **fields: Any) -> None:
        self._tell_run(what, attempt=self._n, **fields)
