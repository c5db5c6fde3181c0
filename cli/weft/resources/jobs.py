"""Jobs: the state of a job, and all requests about jobs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from weft.bundle import manifest_in, open_bundle
from weft.errors import (
    AmbiguousName,
    BundleError,
    JobFailed,
    JobHalted,
    NotFound,
    WeftError,
)
from weft.models import (
    TERMINAL,
    Checkpoint,
    Delivery,
    Event,
    FileInfo,
    Gap,
    Json,
    LogLine,
    LogMatch,
    Profile,
    ProfileFile,
    StateChange,
    parse_time,
)
from weft.resources.code import send
from weft.resources.job_ends import Ends
from weft.resources.job_files import job_path
from weft.resources.job_record import JobRecord, read_record
from weft.resources.job_streams import JobStreams
from weft.resources.metrics import Curve, Metrics, Point, Series
from weft.resources.profiles import Profiles
from weft.transport.http import Body, Transport, segment
from weft.transport.transfer import Progress, silent
from weft.transport.tunnel import Tunnel

_ID = re.compile(r"job-[0-9a-z]{12}")


@dataclass(frozen=True)
class Validation:
    """The server's answer for a valid manifest: the resolved manifest, and notes that are not errors."""

    manifest: Mapping[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Job(JobRecord):
    """A job in the state of the server's last answer; :meth:`refresh` asks again.

    Times are aware datetimes. ``state`` is one of QUEUED, PENDING, DOWNLOADING, PROCESSING, STORING, COMPLETED, FAILED
    and HALTED. ``reason`` explains the state; ``condition`` describes a current problem. ``resources`` are those of one
    learner (``memory`` in bytes). ``metric_values`` holds the newest and best values of each metric by its name,
    from the first learner that reports it. ``params`` holds what the training has logged with MLflow, in lists only
    what :meth:`Jobs.list` was asked for. Only :meth:`Jobs.get` sets ``attempts`` and ``manifest``; in lists they are
    empty.
    """

    _jobs: Jobs = field(repr=False, compare=False)

    @property
    def is_terminal(self) -> bool:
        """Whether the state is COMPLETED, FAILED or HALTED."""
        return self.state in TERMINAL

    @property
    def duration(self) -> float | None:
        """Seconds from the submission to the end; None if the job has not ended."""
        if self.created_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.created_at).total_seconds()

    def refresh(self) -> Job:
        """The current state of the job.

        Raises:
            NotFound: the job has been deleted.
        """
        return self._jobs.get(self.id)

    def wait(self, timeout: float | None = None, *, check: bool = True) -> Job:
        """Block until the job has ended; see :meth:`Jobs.wait`."""
        return self._jobs.wait(self.id, timeout, check=check)

    def logs(self, **options: Any) -> Iterator[LogLine]:
        """The log so far; see :meth:`Jobs.logs`."""
        return self._jobs.logs(self.id, **options)

    def search_logs(self, text: str, **options: Any) -> Iterator[LogMatch]:
        """The lines of the log that contain ``text``; see :meth:`Jobs.search_logs`."""
        return self._jobs.search_logs(self.id, text, **options)

    def training_data(self, kind: str, **page: Any) -> Sequence[Json]:
        """FfDL's ``loglines`` or ``emetrics``; see :meth:`Jobs.training_data`."""
        return self._jobs.training_data(self.id, kind, **page)

    def follow_logs(self, **options: Any) -> Iterator[LogLine | StateChange | Gap]:
        """The log until the job has ended; see :meth:`Jobs.follow_logs`."""
        return self._jobs.follow_logs(self.id, **options)

    def metrics(self, names: Sequence[str] = (), **chosen: Any) -> Sequence[Series]:
        """The metrics so far; see :meth:`weft.resources.metrics.Metrics.list`."""
        return self._jobs.metrics.list(self.id, names, **chosen)

    def curves(self, names: Sequence[str] = (), **options: Any) -> Sequence[Curve]:
        """The metrics as points for a chart; see :meth:`weft.resources.metrics.Metrics.curves`."""
        return self._jobs.metrics.curves(self.id, names, **options)

    def metric_points(self, names: Sequence[str] = (), **chosen: Any) -> Iterator[Point]:
        """All points of the metrics; see :meth:`weft.resources.metrics.Metrics.points`."""
        return self._jobs.metrics.points(self.id, names, **chosen)

    def export_metrics(
        self, target: str | Path, form: Literal["csv", "parquet"] = "csv", names: Sequence[str] = (), **chosen: Any
    ) -> Path:
        """All points of the metrics as a file; see :meth:`weft.resources.metrics.Metrics.export`."""
        return self._jobs.metrics.export(self.id, target, form, names, **chosen)

    def metric_notes(self) -> Sequence[str]:
        """Notes about metrics that the server has dropped, with the reasons."""
        return self._jobs.metrics.notes(self.id)

    def events(self) -> Iterator[Event]:
        """The events so far."""
        return self._jobs.events(self.id)

    def files(self) -> Sequence[FileInfo]:
        """The files of its results."""
        return self._jobs.files(self.id)

    def tunnel(self, kind: str, *, learner: int = 1, **opening: Any) -> Tunnel:
        """A tunnel into a learner; see :meth:`Jobs.tunnel`."""
        return self._jobs.tunnel(self.id, kind, learner=learner, **opening)

    def profile(self, **options: Any) -> Profile:
        """Record a profile of the running job; see :meth:`weft.resources.profiles.Profiles.record`."""
        return self._jobs.profiles.record(self.id, **options)

    def profiles(self) -> Sequence[Profile]:
        """The profiles of the job, newest first."""
        return self._jobs.profiles.list(self.id)

    def download_profile(self, file: ProfileFile, target: str | Path, progress: Progress = silent) -> Path:
        """Download a file of a profile; see :meth:`weft.resources.profiles.Profiles.download`."""
        return self._jobs.profiles.download(self.id, file, target, progress)

    def halt(self, grace_seconds: int | None = None) -> Job:
        """Stop the job and keep what it has stored; see :meth:`Jobs.halt`."""
        return self._jobs.halt(self.id, grace_seconds)

    def edit(self, **changes: Any) -> Job:
        """Change its labels, description, notes or pin; see :meth:`Jobs.edit`."""
        return self._jobs.edit(self.id, **changes)

    def resume(self) -> Job:
        """Queue the job again, from its last checkpoint; see :meth:`Jobs.resume`."""
        return self._jobs.resume(self.id)

    def rerun(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        from_checkpoint: bool | str = False,
        code: str | Path | None = None,
        code_sha256: str | None = None,
    ) -> Job:
        """Submit a new job with the same manifest, and the same or other code; see :meth:`Jobs.rerun`."""
        return self._jobs.rerun(self.id, overrides, from_checkpoint=from_checkpoint, code=code, code_sha256=code_sha256)

    def checkpoints(self) -> Sequence[Checkpoint]:
        """The stored checkpoints of the job; see :meth:`Jobs.checkpoints`."""
        return self._jobs.checkpoints(self.id)

    def deliveries(self) -> Sequence[Delivery]:
        """The notifications of the job; see :meth:`Jobs.deliveries`."""
        return self._jobs.deliveries(self.id)

    def replay_delivery(self, delivery_id: str) -> Delivery:
        """Send a notification again; see :meth:`Jobs.replay_delivery`."""
        return self._jobs.replay_delivery(self.id, delivery_id)

    def delete(self) -> None:
        """Stop the job and remove it; see :meth:`Jobs.delete`."""
        self._jobs.delete(self.id)

    def download_trained_model(self, target: str | Path, progress: Progress = silent) -> Path:
        """Download the results as a zip; see :meth:`Jobs.download_trained_model`."""
        return self._jobs.download_trained_model(self.id, target, progress)

    def download_file(self, path: str, target: str | Path, progress: Progress = silent) -> Path:
        """Download one file of the results; see :meth:`Jobs.download_file`."""
        return self._jobs.download_file(self.id, path, target, progress)

    def download_definition(self, target: str | Path, progress: Progress = silent) -> Path:
        """Download the submitted code as a zip; see :meth:`Jobs.download_definition`."""
        return self._jobs.download_definition(self.id, target, progress)


class Jobs(JobStreams):
    """The jobs of the token's project. Every method raises a :class:`~weft.errors.WeftError`."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.metrics = Metrics(transport)
        self.profiles = Profiles(transport)
        self._ends = Ends(transport)

    def submit(
        self,
        manifest: str,
        code_sha256: str | None = None,
        overrides: Mapping[str, str] | None = None,
        *,
        keepalive: Mapping[str, int] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Queue a job, whose code is on the server already.

        Args:
            manifest: the YAML text.
            code_sha256: the SHA-256 of the code's zip; None: the command needs no code.
            overrides: values by path, ``{"learners": "2", "framework.command": "…"}``.
            keepalive: ``{"seconds": …}``: the server halts the job if :meth:`keep_alive` has not been called for so
                long. ``"idle_seconds"`` (optional): the server also halts the job if it has been idle for so long.
            idempotency_key: the same key with the same manifest and code gets the same job again; None: a new job.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
        """
        body: dict[str, Any] = {"manifest": manifest, "code_sha256": code_sha256, "set": dict(overrides or {})}
        if keepalive is not None:
            body["keepalive"] = dict(keepalive)
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key is not None else {}
        return self._job(self._transport.json("POST", "/jobs", json=body, headers=headers, holds="id"))

    def validate(self, manifest: str, overrides: Mapping[str, str] | None = None) -> Validation:
        """Let the server check the YAML text of a manifest, without submitting it.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
        """
        data = manifest.encode()
        answer = self._transport.json(
            "POST",
            "/manifests:validate",
            params={"set": [f"{key}={value}" for key, value in (overrides or {}).items()]},
            body=Body(lambda: [data], len(data), "text/yaml"),
        )
        return Validation(answer.get("manifest") or {}, tuple(answer.get("notes") or ()))

    def get(self, job_id: str) -> Job:
        """A job with its attempts and its manifest."""
        return self._job(self._transport.json("GET", job_path(job_id), holds="id"))

    def list(
        self,
        *,
        state: str | Sequence[str] | None = None,
        label: str | Sequence[str] | None = None,
        q: str | None = None,
        since: str | None = None,
        metric: str | Sequence[str] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        param: str | Sequence[str] | None = None,
        user: str | None = None,
        engine: str | None = None,
    ) -> Iterator[Job]:
        """Jobs, newest first unless ``sort`` is given. The iteration fetches further pages when it needs them.

        Args:
            state: only jobs in these states.
            label: only jobs with these labels, each ``key=value``.
            q: only jobs with this text in id, name or description.
            since: only jobs submitted after this time (ISO 8601, or an age such as ``2h``).
            metric: only jobs whose metrics meet these conditions: ``NAME<0.3``, ``NAME.max>=0.9`` and so on.
            sort: ``created_at``, ``name``, ``state``, ``duration`` or ``metric:NAME[:min|:max]``; a ``-`` in front
                sorts in descending order.
            limit: maximum number of jobs; None: all.
            param: the parameters that the jobs' ``params`` hold; ``NAME=VALUE`` is also a condition.
            user: only jobs that this user submitted.
            engine: only jobs of this engine.
        """
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page = self._transport.json(
                "GET",
                "/jobs",
                holds="jobs",
                params={
                    "state": state,
                    "label": label,
                    "q": q,
                    "since": since,
                    "metric": metric,
                    "param": param,
                    "user": user,
                    "engine": engine,
                    "sort": sort,
                    "limit": 100 if left is None else min(left, 100),
                    "cursor": cursor,
                },
            )
            jobs = page["jobs"]
            for job in jobs[:left]:
                yield self._job(job)
            cursor = page.get("next_cursor")
            if left is not None:
                left -= len(jobs)
            if not cursor:
                return

    def keep_alive(self, job_id: str) -> datetime | None:
        """Renew the lease of a job that was submitted with ``keepalive``; returns the end of the lease.

        Raises:
            Conflict: the job has ended.
        """
        return parse_time(self._transport.json("PUT", job_path(job_id, "keepalive")).get("until"))

    def tunnel(self, job_id: str, kind: str, *, learner: int = 1, **opening: Any) -> Tunnel:
        """A tunnel into a learner of a running job (docs/into-a-job.md).

        Args:
            kind: ``exec``, ``shell``, ``get``, ``put`` or ``forward``.
            learner: its number, from 1.
            opening: what that kind needs: ``command``, ``terminal``, ``path`` or ``port``.

        Raises:
            PermissionDenied: this needs the role editor, or the project lets nobody in.
            Conflict: no learner of the job runs.
            Unavailable: the server or the learner does not answer.
        """
        return self._transport.tunnel(job_path(job_id, f"tunnels/{segment(kind)}?learner={learner}"), opening)

    def halt(self, job_id: str, grace_seconds: int | None = None) -> Job:
        """Stop the job's learners (SIGTERM, after ``grace_seconds`` SIGKILL) and keep what the job has stored.

        The job can be resumed. This returns at once, before the learners have stopped.

        Raises:
            Conflict: the job is COMPLETED or FAILED.
        """
        body = {} if grace_seconds is None else {"grace_seconds": grace_seconds}
        return self._job(self._transport.json("POST", job_path(job_id, "halt"), json=body))

    def edit(
        self,
        job_id: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        description: str | None = None,
        notes: str | None = None,
        pinned: bool | None = None,
    ) -> Job:
        """Change the description of a job. Fields that are not given stay as they are.

        Args:
            labels: labels that it gets; None removes a label. Other labels stay.
            description: of the job and of its manifest.
            notes: text for the users of the project.
            pinned: whether the dashboard shows the job above the other jobs.

        Raises:
            BadRequest: a label is not one that a manifest may have.
        """
        given = {"labels": labels, "description": description, "notes": notes, "pinned": pinned}
        body = {name: value for name, value in given.items() if value is not None}
        return self._job(self._transport.json("PATCH", job_path(job_id), json=body))

    def resume(self, job_id: str) -> Job:
        """Queue a halted or failed job again; it continues from its last checkpoint.

        Raises:
            Conflict: the job is in another state.
        """
        return self._job(self._transport.json("POST", job_path(job_id, "resume"), json={}))

    def rerun(
        self,
        job_id: str,
        overrides: Mapping[str, str] | None = None,
        *,
        from_checkpoint: bool | str = False,
        code: str | Path | None = None,
        code_sha256: str | None = None,
    ) -> Job:
        """Submit a new job with the same manifest, and the same or other code; returns the new job.

        Args:
            overrides: as for :meth:`submit`.
            from_checkpoint: True: start from a copy of the last complete checkpoint; a text: from a copy of the
                checkpoint of this ``generation``. The copy does not depend on the old job.
            code: folder or zip of other code. A ``manifest.yml`` in the folder is not sent.
            code_sha256: instead of ``code``: the SHA-256 of other code that :meth:`weft.Client.send_code` has sent.

        Raises:
            Conflict: there is no such checkpoint.
            BundleError, InvalidBundle: the code can't be packed, or the server refuses it.
        """
        if code is not None:
            if code_sha256 is not None:
                raise WeftError("rerun takes code or code_sha256, not both")
            code_sha256 = self._send(Path(code))
        body: dict[str, Any] = {"set": dict(overrides or {})}
        if from_checkpoint:
            body["from_checkpoint"] = from_checkpoint
        if code_sha256 is not None:
            body["code_sha256"] = code_sha256
        return self._job(self._transport.json("POST", job_path(job_id, "rerun"), json=body))

    def _send(self, code: Path) -> str:
        with open_bundle(code, leave_out=manifest_in(code)) as bundle:
            if bundle is None:
                raise BundleError(f"{code} has no code")
            if bundle.warning:
                warnings.warn(bundle.warning, stacklevel=3)
            send(self._transport, bundle)
            return bundle.sha256

    def checkpoints(self, job_id: str) -> Sequence[Checkpoint]:
        """The stored checkpoints of a job, newest first. Each learner that writes checkpoints has its own."""
        page = self._transport.json("GET", job_path(job_id, "checkpoints"))
        return [Checkpoint.from_json(checkpoint) for checkpoint in page.get("checkpoints") or []]

    def deliveries(self, job_id: str) -> Sequence[Delivery]:
        """The newest 1000 notifications of a job, by its manifest's ``notify``. The newest event comes first."""
        page = self._transport.json("GET", job_path(job_id, "deliveries"), params={"limit": 1000})
        return [Delivery.from_json(delivery) for delivery in page.get("deliveries") or []]

    def replay_delivery(self, job_id: str, delivery_id: str) -> Delivery:
        """Send a notification again, with the same event id; returns the delivery as it is now.

        Raises:
            NotFound: the job has no such delivery.
        """
        path = job_path(job_id, f"deliveries/{segment(delivery_id)}/replay")
        return Delivery.from_json(self._transport.json("POST", path))

    def delete(self, job_id: str) -> None:
        """Stop the job, and remove it, its logs, and its results in the installation's own store."""
        self._transport.request("DELETE", job_path(job_id))

    # --- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, job_id: str, timeout: float | None = None, *, check: bool = True) -> Job:
        """Block until the job has ended. Lost connections are restored.

        Args:
            job_id: the job.
            timeout: seconds; None: no limit.
            check: raise an error unless the job is COMPLETED.

        Raises:
            JobFailed, JobHalted: only with ``check``; ``error.job`` is the job.
            WaitTimeout: the time ran out.
            NotFound: the job has been deleted.
            Unavailable: no contact for ten minutes.
        """
        while not (job := self._ends.wait(job_id, timeout, self.get)).is_terminal:
            pass  # it was halted and resumed
        if check and job.state == "FAILED":
            raise JobFailed(job)
        if check and job.state == "HALTED":
            raise JobHalted(job)
        return job

    def find(self, reference: str) -> Job:
        """The job with this id, beginning of an id, or name (if only one job has it); ``@last`` is the newest job.

        Raises:
            NotFound: no job matches.
            AmbiguousName: several jobs match; the text lists them.
        """
        if reference == "@last":
            for job in self.list(limit=1):
                return self.get(job.id)
            raise NotFound("not_found", 404, "there are no jobs yet, so @last means none")
        if _ID.fullmatch(reference):
            return self.get(reference)
        fitting = [
            job
            for job in self.list(q=reference, limit=500)
            if job.name == reference or job.id.startswith((reference, f"job-{reference}"))
        ]
        if not fitting:
            raise NotFound("not_found", 404, f"no job has the id or name {reference!r}, and no id begins with it")
        if len(fitting) > 1:
            shown = "".join(f"\n  {job.id}  {job.state:<10}  {job.name}" for job in fitting[:10])
            more = f"\n  and {len(fitting) - 10} more" if len(fitting) > 10 else ""
            raise AmbiguousName(f"{reference!r} matches {len(fitting)} jobs, newest first:{shown}{more}")
        return self.get(fitting[0].id)

    def _job(self, data: Json) -> Job:
        return Job(**vars(read_record(data)), _jobs=self)
