"""Jobs: what can be asked of them and done with them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import httpx

from weft.errors import AmbiguousName, JobFailed, JobHalted, NotFound, Unavailable, WaitTimeout
from weft.models import (
    TERMINAL,
    Attempt,
    Checkpoint,
    Event,
    FileInfo,
    Framework,
    Gap,
    Json,
    LogLine,
    LogMatch,
    StateChange,
    parse_time,
)
from weft.resources.logs import Log, Which
from weft.resources.metrics import Curve, Metrics, MetricValues, Point, Series
from weft.resources.watch import Item, watch
from weft.transport.http import Query, Transport, segment
from weft.transport.sse import PATIENCE, Follower
from weft.transport.transfer import Progress, download, silent

_PAGE = 500
_QUICKEST, _SLOWEST = 0.1, 2.0
"""Seconds between two looks at a job that is waited for."""
_ID = re.compile(r"job-[0-9a-z]{12}")
Trouble = Callable[[Unavailable], None]


def _path(job_id: str, rest: str = "") -> str:
    return f"/jobs/{segment(job_id)}" + (f"/{rest}" if rest else "")


def _ignore(error: Unavailable) -> None:
    """Lost connections come back by themselves; nobody needs to hear of them."""


@dataclass(frozen=True)
class Job:
    """A job as the server last told of it; :meth:`refresh` asks anew.

    Times are aware datetimes. ``state`` is one of QUEUED, PENDING, DOWNLOADING, PROCESSING, STORING, COMPLETED, FAILED
    and HALTED, ``reason`` says why, ``condition`` what is unusual just now. ``resources`` holds what one learner gets
    (``memory`` in bytes). ``metric_values`` holds the newest and best value of each metric by its name, of the first
    learner that reports it. ``attempts`` and ``manifest`` are set by :meth:`Jobs.get`, and are empty in lists.
    """

    id: str
    name: str
    state: str
    desired: str
    reason: str
    error_code: str | None
    condition: str | None
    description: str
    labels: Mapping[str, str]
    engine: str
    priority: int
    framework: Framework
    learners: int
    resources: Mapping[str, Any]
    attempt: int
    retries: int
    failures: int
    code_sha256: str | None
    rerun_of: str | None
    checkpoint_of: Json | None
    user: str | None
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    queue_position: int | None
    metric_values: Mapping[str, MetricValues]
    attempts: tuple[Attempt, ...]
    manifest: Mapping[str, Any]
    raw: Json = field(repr=False, compare=False)
    _jobs: Jobs = field(repr=False, compare=False)

    @property
    def is_terminal(self) -> bool:
        """COMPLETED, FAILED or HALTED."""
        return self.state in TERMINAL

    @property
    def duration(self) -> float | None:
        """Seconds from the submission to the end; None while the job lives."""
        if self.created_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.created_at).total_seconds()

    def refresh(self) -> Job:
        """The job as it is now. Raises :class:`~weft.errors.NotFound` when it has been deleted."""
        return self._jobs.get(self.id)

    def wait(self, timeout: float | None = None, *, check: bool = True) -> Job:
        """Block until the job has ended; see :meth:`Jobs.wait`."""
        return self._jobs.wait(self.id, timeout, check=check)

    def logs(self, **options: Any) -> Iterator[LogLine]:
        """The log so far; see :meth:`Jobs.logs`."""
        return self._jobs.logs(self.id, **options)

    def search_logs(self, text: str, **options: Any) -> Iterator[LogMatch]:
        """The lines of the log in which ``text`` stands; see :meth:`Jobs.search_logs`."""
        return self._jobs.search_logs(self.id, text, **options)

    def training_data(self, kind: str, **page: Any) -> Sequence[Json]:
        """FfDL's ``loglines`` or ``emetrics``; see :meth:`Jobs.training_data`."""
        return self._jobs.training_data(self.id, kind, **page)

    def follow_logs(self, **options: Any) -> Iterator[LogLine | StateChange | Gap]:
        """The log until the job has ended; see :meth:`Jobs.follow_logs`."""
        return self._jobs.follow_logs(self.id, **options)

    def metrics(self, names: Sequence[str] = (), **chosen: Any) -> Sequence[Series]:
        """What it has measured so far; see :meth:`weft.resources.metrics.Metrics.list`."""
        return self._jobs.metrics.list(self.id, names, **chosen)

    def curves(self, names: Sequence[str] = (), **options: Any) -> Sequence[Curve]:
        """The same with points for a chart; see :meth:`weft.resources.metrics.Metrics.curves`."""
        return self._jobs.metrics.curves(self.id, names, **options)

    def metric_points(self, names: Sequence[str] = (), **chosen: Any) -> Iterator[Point]:
        """The same with every point; see :meth:`weft.resources.metrics.Metrics.points`."""
        return self._jobs.metrics.points(self.id, names, **chosen)

    def export_metrics(
        self, target: str | Path, form: Literal["csv", "parquet"] = "csv", names: Sequence[str] = (), **chosen: Any
    ) -> Path:
        """All of them as a file; see :meth:`weft.resources.metrics.Metrics.export`."""
        return self._jobs.metrics.export(self.id, target, form, names, **chosen)

    def metric_notes(self) -> Sequence[str]:
        """What the server has dropped of them, and why."""
        return self._jobs.metrics.notes(self.id)

    def events(self) -> Iterator[Event]:
        """What has happened to the job so far."""
        return self._jobs.events(self.id)

    def files(self) -> Sequence[FileInfo]:
        """The files among its results."""
        return self._jobs.files(self.id)

    def halt(self, grace_seconds: int | None = None) -> Job:
        """Stop it and keep what it has; see :meth:`Jobs.halt`."""
        return self._jobs.halt(self.id, grace_seconds)

    def resume(self) -> Job:
        """Go on from its last checkpoint; see :meth:`Jobs.resume`."""
        return self._jobs.resume(self.id)

    def rerun(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        from_checkpoint: bool | str = False,
        code_sha256: str | None = None,
    ) -> Job:
        """A new job of the same manifest and code; see :meth:`Jobs.rerun`."""
        return self._jobs.rerun(self.id, overrides, from_checkpoint=from_checkpoint, code_sha256=code_sha256)

    def checkpoints(self) -> Sequence[Checkpoint]:
        """The checkpoints that are kept of it; see :meth:`Jobs.checkpoints`."""
        return self._jobs.checkpoints(self.id)

    def delete(self) -> None:
        """Stop it and remove it; see :meth:`Jobs.delete`."""
        self._jobs.delete(self.id)

    def download_trained_model(self, target: str | Path, progress: Progress = silent) -> Path:
        """The results as a zip; see :meth:`Jobs.download_trained_model`."""
        return self._jobs.download_trained_model(self.id, target, progress)

    def download_file(self, path: str, target: str | Path, progress: Progress = silent) -> Path:
        """One file of the results; see :meth:`Jobs.download_file`."""
        return self._jobs.download_file(self.id, path, target, progress)

    def download_definition(self, target: str | Path, progress: Progress = silent) -> Path:
        """The code as it was submitted, as a zip; see :meth:`Jobs.download_definition`."""
        return self._jobs.download_definition(self.id, target, progress)


class Jobs:
    """The jobs of the token's project. Every method raises a :class:`~weft.errors.WeftError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.metrics = Metrics(transport)

    def submit(
        self,
        manifest: str,
        code_sha256: str | None = None,
        overrides: Mapping[str, str] | None = None,
        *,
        keepalive: Mapping[str, int] | None = None,
    ) -> Job:
        """Queue a job of a manifest (its text) and code that is on the server already.

        Args:
            manifest: the YAML text.
            code_sha256: the code's zip; None for a command that needs no code.
            overrides: by path, ``{"learners": "2", "framework.command": "…"}``.
            keepalive: ``{"seconds": …}``: the job is halted when :meth:`keep_alive` has not been called for so long;
                ``"idle_seconds"`` (optional): and when it has been idle for so long.

        Raises:
            InvalidManifest: ``problems`` names each fault.
        """
        body: dict[str, Any] = {"manifest": manifest, "code_sha256": code_sha256, "set": dict(overrides or {})}
        if keepalive is not None:
            body["keepalive"] = dict(keepalive)
        return self._job(self._transport.json("POST", "/jobs", json=body, holds="id"))

    def get(self, job_id: str) -> Job:
        """One job, with its attempts and manifest."""
        return self._job(self._transport.json("GET", _path(job_id), holds="id"))

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
    ) -> Iterator[Job]:
        """Jobs, newest first unless ``sort`` says otherwise; further pages are fetched as the iteration reaches them.

        Args:
            state: only these states.
            label: only jobs with these labels, each ``key=value``.
            q: only jobs with this text in id, name or description.
            since: only jobs submitted after this time (ISO 8601, or an age such as ``2h``).
            metric: only jobs whose metrics are so: each ``NAME<0.3``, ``NAME.max>=0.9``, …
            sort: ``created_at``, ``name``, ``state`` or ``metric:NAME[:min|:max]``; ``-`` in front: descending.
            limit: at most so many; None = all.
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
                    "sort": sort,
                    "limit": 100 if left is None else min(left, 100),
                    "cursor": cursor,
                },
            )
            jobs = page["jobs"]
            for one in jobs[:left]:
                yield self._job(one)
            cursor = page.get("next_cursor")
            if left is not None:
                left -= len(jobs)
            if not cursor:
                return

    def keep_alive(self, job_id: str) -> datetime | None:
        """Say that the client of a job lives that was submitted with ``keepalive``; until when that counts. Raises
        Conflict when the job has ended."""
        return parse_time(self._transport.json("PUT", _path(job_id, "keepalive")).get("until"))

    def halt(self, job_id: str, grace_seconds: int | None = None) -> Job:
        """Stop the job's learners (SIGTERM, after ``grace_seconds`` SIGKILL) and keep what it has stored; it can be
        resumed. Returns at once: the job gets there by itself. Raises Conflict when it has ended otherwise."""
        body = {} if grace_seconds is None else {"grace_seconds": grace_seconds}
        return self._job(self._transport.json("POST", _path(job_id, "halt"), json=body))

    def resume(self, job_id: str) -> Job:
        """Queue a halted or failed job again; it goes on from its last checkpoint. Raises Conflict in other states."""
        return self._job(self._transport.json("POST", _path(job_id, "resume"), json={}))

    def rerun(
        self,
        job_id: str,
        overrides: Mapping[str, str] | None = None,
        *,
        from_checkpoint: bool | str = False,
        code_sha256: str | None = None,
    ) -> Job:
        """A new job of the same manifest and code, with overrides; the new one is returned. ``code_sha256`` is other
        code, which :meth:`weft.Client.send_code` has sent.

        With ``from_checkpoint`` it begins with the last complete checkpoint that the job has now, or with the one of
        that ``generation``: a copy, which stays whatever becomes of the job. Raises Conflict when there is none.
        """
        body: dict[str, Any] = {"set": dict(overrides or {})}
        if from_checkpoint:
            body["from_checkpoint"] = from_checkpoint
        if code_sha256 is not None:
            body["code_sha256"] = code_sha256
        return self._job(self._transport.json("POST", _path(job_id, "rerun"), json=body))

    def checkpoints(self, job_id: str) -> Sequence[Checkpoint]:
        """The checkpoints that are kept of a job, the newest first. Each learner that writes any has its own."""
        page = self._transport.json("GET", _path(job_id, "checkpoints"))
        return [Checkpoint.from_json(one) for one in page.get("checkpoints") or []]

    def delete(self, job_id: str) -> None:
        """Stop the job and remove it, its logs and its results in the installation's own store."""
        self._transport.request("DELETE", _path(job_id))

    # --- events and logs -------------------------------------------------------------------------------------------

    def events(self, job_id: str, *, after: int | None = None) -> Iterator[Event]:
        """What has happened so far, oldest first; ``after`` is an event's id."""
        while True:
            page = self._transport.json("GET", _path(job_id, "events"), params={"after": after, "limit": _PAGE})
            events = [Event.from_json(one) for one in page.get("events") or []]
            yield from events
            if len(events) < _PAGE:
                return
            after = events[-1].id

    def follow_events(
        self, job_id: str, *, after: int | None = None, on_trouble: Trouble = _ignore, patience: float = PATIENCE
    ) -> Iterator[Event]:
        """What has happened and what happens, until the job has ended; survives lost connections.

        Raises:
            Unavailable: no contact for ``patience`` seconds.
        """
        for event in Follower(
            self._transport,
            _path(job_id, "events"),
            params={"after": after},
            after=after,
            finished=lambda: self.get(job_id).is_terminal,
            on_trouble=on_trouble,
            patience=patience,
        ):
            if "id" in event.data and "kind" in event.data:
                yield Event.from_json(event.data)

    def logs(self, job_id: str, **which: Any) -> Iterator[LogLine]:
        """The log so far, in order. ``which``: the members of :class:`~weft.resources.logs.Which`:

        Args:
            learner: only this one's lines, from 1.
            attempt: only this attempt's, from 1.
            tail: only the last so many.
            since: only from this time on: ISO 8601, milliseconds since the epoch, or an age such as ``30s``.
            at: from the first line at or after this time on.
            start, end: the numbers of the first and the last line.
        """
        return Log(self._transport, job_id, Which(**which)).read()

    def search_logs(
        self, job_id: str, text: str, *, regex: bool = False, case: bool = False, context: int = 0, **which: Any
    ) -> Iterator[LogMatch]:
        """The lines so far in which ``text`` stands, in order.

        Args:
            text: a substring, or with ``regex`` a regular expression in RE2's syntax.
            case: whether upper and lower case differ.
            context: lines before and after each, up to 20.
            which: see :meth:`logs`; all but ``tail``.

        Raises:
            ApiError: it is no regular expression.
        """
        return Log(self._transport, job_id, Which(**which)).search(text, regex=regex, case=case, context=context)

    def training_data(
        self, job_id: str, kind: str, *, pagesize: int = 20, pos: int = 0, since_time: str = ""
    ) -> Sequence[Json]:
        """A page of FfDL's ``loglines`` or ``emetrics``, in its form (docs/from-ffdl.md).

        Args:
            pos: number of the first, from 1; below 0: so many before the end.
            since_time: from then on: milliseconds since the epoch, a span such as ``1h30m``, or a date; ``pos`` means
                nothing then.
        """
        params: Query = {"pagesize": pagesize, "pos": pos, "since_time": since_time}
        return list(self.ffdl(f"/logs/{segment(job_id)}/{kind}", params)["models"])

    def ffdl(self, path: str, params: Query | None = None) -> dict[str, Any]:
        """What FfDL's API has at a path below ``/v1``, in its form (docs/from-ffdl.md)."""
        return self._transport.json("GET", path, params=params, base="/v1")

    def follow_logs(
        self,
        job_id: str,
        *,
        on_trouble: Trouble = _ignore,
        patience: float = PATIENCE,
        complete: bool = True,
        **which: Any,
    ) -> Iterator[LogLine | StateChange | Gap]:
        """The log so far and as it grows, until the job has ended, retries included; each line once, through lost
        connections and restarts of the server. Between the lines stand :class:`~weft.models.StateChange`, the last
        one ``final``.

        Args:
            complete: False: should lines come faster than they are taken, some are left out, and a
                :class:`~weft.models.Gap` says which.
            which: see :meth:`logs`; all but ``end``.

        Raises:
            Unavailable: no contact for ``patience`` seconds.
        """
        return Log(self._transport, job_id, Which(**which)).follow(on_trouble, patience, complete=complete)

    def watch(self, job_id: str, *, on_trouble: Trouble = _ignore, complete: bool = True) -> Iterator[Item]:
        """Events and log lines together until the job has ended, as ``weft train --follow`` shows them."""
        log = self.follow_logs(job_id, on_trouble=on_trouble, complete=complete)
        return watch(self.follow_events(job_id, on_trouble=on_trouble), log)

    # --- files -----------------------------------------------------------------------------------------------------

    def files(self, job_id: str) -> Sequence[FileInfo]:
        """The files among the job's results so far."""
        page = self._transport.json("GET", _path(job_id, "files"))
        return [FileInfo.from_json(one) for one in page.get("files") or []]

    def download_file(self, job_id: str, path: str, target: str | Path, progress: Progress = silent) -> Path:
        """One file of the results. Raises TransferError when it does not come through."""
        quoted = "/".join(segment(part) for part in path.split("/"))
        return self._download(_path(job_id, f"files/{quoted}"), target, progress)

    def download_trained_model(self, job_id: str, target: str | Path, progress: Progress = silent) -> Path:
        """All results as a zip. Raises Conflict when there are none (yet, or any more), TransferError."""
        return self._download(_path(job_id, "trained-model"), target, progress)

    def download_definition(self, job_id: str, target: str | Path, progress: Progress = silent) -> Path:
        """The code as it was submitted, as a zip. Raises NotFound when the job has none, TransferError."""
        return self._download(_path(job_id, "definition"), target, progress)

    def _download(self, path: str, target: str | Path, progress: Progress) -> Path:
        def open_at(headers: Mapping[str, str]) -> AbstractContextManager[httpx.Response]:
            return self._transport.stream("GET", path, headers=headers)

        target = Path(target)
        download(open_at, target, progress)
        return target

    # --- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, job_id: str, timeout: float | None = None, *, check: bool = True) -> Job:
        """Block until the job has ended; survives lost connections.

        Args:
            job_id: the job.
            timeout: seconds; None = as long as it takes.
            check: raise for an end other than COMPLETED.

        Raises:
            JobFailed, JobHalted: with ``check``; ``error.job`` is the job.
            WaitTimeout: the time ran out.
            NotFound: it has been deleted.
            Unavailable: no contact for ten minutes.
        """
        begun = contact = time.monotonic()
        deadline = None if timeout is None else begun + timeout
        while True:
            try:
                job = self.get(job_id)
                contact = time.monotonic()
            except Unavailable:
                if time.monotonic() - contact > PATIENCE:
                    raise
            else:
                if job.is_terminal:
                    break
            # Asked more and more seldom: the end is noticed within a twentieth of what has passed.
            pause = min(max(_QUICKEST, 0.05 * (time.monotonic() - begun)), _SLOWEST)
            if deadline is not None:
                pause = min(pause, deadline - time.monotonic())
                if pause <= 0:
                    raise WaitTimeout(f"job {job_id} has not ended within {timeout:g} s")
            time.sleep(pause)
        if check and job.state == "FAILED":
            raise JobFailed(job)
        if check and job.state == "HALTED":
            raise JobHalted(job)
        return job

    def find(self, reference: str) -> Job:
        """The job of an id, of the beginning of an id, of a name that only one job has, or the newest (``@last``).

        Raises:
            NotFound: nothing fits.
            AmbiguousName: several fit; the text lists them.
        """
        if reference == "@last":
            for job in self.list(limit=1):
                return self.get(job.id)
            raise NotFound("not_found", 404, "there is no job yet, so none is @last")
        if _ID.fullmatch(reference):
            return self.get(reference)
        fitting = [
            job
            for job in self.list(q=reference, limit=500)
            if job.name == reference or job.id.startswith((reference, f"job-{reference}"))
        ]
        if not fitting:
            raise NotFound("not_found", 404, f"no job has the id or name {reference!r}, and no id begins so")
        if len(fitting) > 1:
            shown = "".join(f"\n  {job.id}  {job.state:<10}  {job.name}" for job in fitting[:10])
            more = f"\n  and {len(fitting) - 10} more" if len(fitting) > 10 else ""
            raise AmbiguousName(f"{reference!r} fits {len(fitting)} jobs, newest first:{shown}{more}")
        return self.get(fitting[0].id)

    def _job(self, data: Json) -> Job:
        framework = data.get("framework") or {}
        return Job(
            id=str(data["id"]),
            name=str(data.get("name") or ""),
            state=str(data.get("state") or ""),
            desired=str(data.get("desired") or ""),
            reason=str(data.get("reason") or ""),
            error_code=data.get("error_code"),
            condition=data.get("condition"),
            description=str(data.get("description") or ""),
            labels=data.get("labels") or {},
            engine=str(data.get("engine") or ""),
            priority=int(data.get("priority") or 0),
            framework=Framework(*(str(framework.get(k) or "") for k in ("name", "version", "launcher", "command"))),
            learners=int(data.get("learners") or 1),
            resources=data.get("resources") or {},
            attempt=int(data.get("attempt") or 0),
            retries=int(data.get("retries") or 0),
            failures=int(data.get("failures") or 0),
            code_sha256=data.get("code_sha256"),
            rerun_of=data.get("rerun_of"),
            checkpoint_of=data.get("checkpoint_of"),
            user=data.get("user"),
            created_at=parse_time(data.get("created_at")),
            started_at=parse_time(data.get("started_at")),
            ended_at=parse_time(data.get("ended_at")),
            queue_position=data.get("queue_position"),
            metric_values={name: MetricValues.from_json(one) for name, one in (data.get("metrics") or {}).items()},
            attempts=tuple(Attempt.from_json(one) for one in data.get("attempts") or ()),
            manifest=data.get("manifest") or {},
            raw=data,
            _jobs=self,
        )
