"""The tools of ``weft mcp``. Their docstrings are what a model reads about them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from weft.agents.answers import OUTPUT, answer, flattened, job_line, log_line, number
from weft.agents.planning import plan_lines
from weft.bundle import open_bundle
from weft.client import Client
from weft.errors import WeftError
from weft.resources.jobs import Job
from weft.ui.advice import advice
from weft.ui.cells import resources
from weft.ui.times import ago
from weft.words import count

_MOST_JOBS, _MOST_COMPARED, _MOST_LINES, _POINTS, _CALLS = 50, 10, 200, 20, 10


class ReadTools:
    """The tools that change nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def plan(self, manifest: str, overrides: dict[str, str] | None = None) -> str:
        """Check a manifest without submitting it: whether it is valid, whether it fits on its engine, and what it
        costs at most in GPU-hours.

        Args:
            manifest: the manifest as YAML text, such as "name: hello\\nframework: {name: pytorch, command: python
                train.py}\\ngpus: 1\\nmax_runtime: 1h".
            overrides: values that replace the manifest's, by path: {"learners": "2"}.
        """
        valid = self._client.jobs.validate(manifest, overrides)
        return answer(
            plan_lines(self._client, valid.manifest, valid.notes), "submit, if you may, with the same manifest"
        )

    def engines(self) -> str:
        """List the engines that run jobs: their health, their free resources, and how many jobs wait and run."""
        lines = []
        for engine in self._client.engines():
            default = " (default)" if engine.default else ""
            free = resources(engine.free) if engine.free else "unknown"
            lines.append(
                f"{engine.name}{default}: {engine.type}, {engine.health}, free {free} of {resources(engine.capacity)}, "
                f"{engine.queued} waiting, {engine.running} running"
            )
        return answer(lines, "plan, to see whether a manifest fits")

    def list_jobs(
        self,
        state: list[str] | None = None,
        text: str = "",
        label: list[str] | None = None,
        metric: list[str] | None = None,
        sort: str = "",
        limit: int = 20,
    ) -> str:
        """List jobs of the project, newest first: id, state, name and reason, a line each.

        Args:
            state: only these states: QUEUED, PENDING, DOWNLOADING, PROCESSING, STORING, COMPLETED, FAILED, HALTED.
            text: only jobs with this text in their name, id or description.
            label: only jobs with all of these labels, each key=value.
            metric: only jobs whose metrics meet these conditions: train/loss<0.3, val/acc.max>=0.9.
            sort: created_at, name, state, or metric:NAME[:min|:max]; a - in front sorts in descending order.
            limit: at most so many jobs, up to 50.
        """
        limit = max(1, min(limit, _MOST_JOBS))
        found = list(
            self._client.jobs.list(
                state=state, label=label, metric=metric, q=text or None, sort=sort or None, limit=limit + 1
            )
        )
        lines = [job_line(job) for job in found[:limit]] or ["no job matches"]
        if len(found) > limit:
            lines.append(f"… and more: ask for fewer with state, text, label or metric, or for up to {_MOST_JOBS}")
        return answer(lines, "show_job with an id")

    def show_job(self, job: str) -> str:
        """Show a job: its state and the reason, its resources, attempts and newest metrics.

        Args:
            job: its id, the beginning of its id, a name that only one job has, or @last for the newest job.
        """
        found = self._client.job(job)
        lines = [
            job_line(found),
            f"engine {found.engine}, {count(found.learners, 'learner')} of {resources(found.resources)} each",
            f"submitted {ago(found.created_at)} by {found.user}, attempt {found.attempt}, {found.failures} of "
            f"{found.retries} retries used",
            f"command: {found.framework.command}",
        ]
        if found.condition:
            lines.append(f"condition: {found.condition}")
        if found.rerun_of:
            lines.append(f"rerun of: {found.rerun_of}")
        lines += [f"param {name}: {value}" for name, value in islice(found.params.items(), 30)]
        lines += [
            f"metric {name}: last {number(values.last)} at step {values.step}, min {number(values.min)}, "
            f"max {number(values.max)}"
            for name, values in islice(found.metric_values.items(), 30)
        ]
        return answer(lines, _next_call(found))

    def why_waiting(self, job: str) -> str:
        """Explain why a job does not run yet: what it waits for, its place in the queue, and what its engine has free.

        Args:
            job: its id, the beginning of its id, a unique name, or @last.
        """
        found = self._client.job(job)
        if found.state not in ("QUEUED", "PENDING"):
            return answer([job_line(found), "The job does not wait."], _next_call(found))
        lines = [job_line(found), f"reason: {found.reason}"]
        if found.condition:
            lines.append(f"condition: {found.condition}")
        if found.queue_position is not None:
            lines.append(f"place in the queue of engine {found.engine}: {found.queue_position}")
        for entry in found.manifest.get("after") or ():
            lines.append(f"starts after: {job_line(self._client.job(entry['job']))}")
        engine = self._client.engine(found.engine)
        free = resources(engine.free) if engine.free else "unknown"
        lines.append(f"engine {engine.name}: {engine.health}, free {free}, {engine.running} jobs running")
        return answer(lines, "why_waiting again later, or halt if it should not run")

    def why_failed(self, job: str) -> str:
        """Explain why a job failed or was halted: the reason with the last lines of its log, each attempt, and what
        may help.

        Args:
            job: its id, the beginning of its id, a unique name, or @last.
        """
        found = self._client.job(job)
        lines = [job_line(found)]
        if found.state not in ("FAILED", "HALTED") and not found.failures:
            return answer([*lines, "The job has not failed."], _next_call(found))
        lines += [OUTPUT, f"reason: {found.reason}"]
        for attempt in found.attempts[-5:]:
            lines.append(f"attempt {attempt.n}: {attempt.outcome or 'runs'}: {attempt.reason}")
            lines += [
                f"  learner {learner.learner} on {learner.node or 'no node'}: exit code {learner.exit_code}"
                for learner in attempt.learners
                if learner.exit_code
            ][:20]
        if found.state in ("FAILED", "HALTED"):
            lines += [f"may help: {action}: `{command}`" for action, command in advice(found)]
        return answer(lines, f'logs with job="{found.id}" and search="Error", or submit a corrected manifest')

    def logs(
        self,
        job: str,
        search: str = "",
        regex: bool = False,
        context: int = 2,
        learner: int | None = None,
        attempt: int | None = None,
        start: int = 0,
        limit: int = 50,
    ) -> str:
        """Search the log of a job, or read its end. Each line has its number and its learner.

        Args:
            job: its id, the beginning of its id, a unique name, or @last.
            search: a text that the lines contain; without it, the last lines are shown.
            regex: whether search is a regular expression (RE2).
            context: lines before and after each match, up to 20.
            learner: only lines of this learner, from 1.
            attempt: only lines of this attempt, from 1.
            start: the number of the first line to search.
            limit: at most so many matches or lines, up to 200.
        """
        found, limit = self._client.job(job), max(1, min(limit, _MOST_LINES))
        if not search:
            lines = list(found.logs(tail=limit, learner=learner, attempt=attempt))
            told = [OUTPUT, *map(log_line, lines)] if lines else ["the log is empty"]
            return answer(told, "logs with search, to find a text in all of it")
        matches = found.search_logs(
            search,
            regex=regex,
            context=max(0, min(context, 20)),
            learner=learner,
            attempt=attempt,
            start=start or None,
        )
        taken = list(islice(matches, limit))
        told = [OUTPUT] if taken else [f"no line contains {search!r}"]
        for match in taken:
            told += [log_line(line) for line in match.before]
            told += [log_line(match.line, ">"), *(log_line(line) for line in match.after)]
        more = f"logs with the same search and start={taken[-1].line.n + 1}" if len(taken) == limit else ""
        return answer(told, more)

    def metrics(self, job: str, names: list[str] | None = None) -> str:
        """Show a job's metrics: of each the newest value, minimum and maximum; with names also the course of each.

        Args:
            job: its id, the beginning of its id, a unique name, or @last.
            names: metrics with their groups, such as train/loss; without them, all.
        """
        found, chosen = self._client.job(job), names or []
        series = found.metrics(chosen, kind="user")
        lines = [
            f"{entry.name} (learner {entry.learner}, attempt {entry.attempt}): last {number(entry.last)} at step "
            f"{entry.last_step}, min {number(entry.min)}, max {number(entry.max)}, {count(entry.points, 'point')}"
            for entry in series[:_MOST_LINES]
        ]
        for curve in found.curves(chosen, width=_POINTS, kind="user") if chosen else ():
            points = ", ".join(f"{x}: {number(value)}" for x, value in zip(curve.x, curve.last, strict=True))
            lines.append(f"{curve.name} (learner {curve.learner}, attempt {curve.attempt}) by step: {points}")
        lines += [f"note: {note}" for note in found.metric_notes()]
        return answer(lines or ["the job has reported no metrics"], "compare, for several jobs side by side")

    def compare(self, jobs: list[str]) -> str:
        """Compare jobs: the keys of their manifests and the parameters that differ, and their metrics.

        Args:
            jobs: two to ten jobs: ids, beginnings of ids, unique names, or @last.
        """
        if not 2 <= len(jobs) <= _MOST_COMPARED:
            raise WeftError(f"compare takes two to {_MOST_COMPARED} jobs, not {len(jobs)}")
        found = [self._client.job(job) for job in jobs]
        lines = [job_line(job) for job in found]
        keys = [{**flattened(job.manifest), **{f"param {k}": v for k, v in job.params.items()}} for job in found]
        lines += ["differences, in the order of the jobs above:", *(_differing(keys) or ["none"])]
        names = sorted({name for job in found for name in job.metric_values})
        lines += [f"metric {name}: {' | '.join(_best(job, name) for job in found)}" for name in names[:50]]
        return answer(lines, "metrics with names, for the course of a metric")


class WriteTools:
    """The tools that change something. ``root``: the folder whose files may be sent as code."""

    def __init__(self, client: Client, root: Path) -> None:
        self._client = client
        self._root = root.resolve()

    def submit(
        self, manifest: str, idempotency_key: str, code: str = "", overrides: dict[str, str] | None = None
    ) -> str:
        """Submit a job. It runs until it ends, reaches its max_runtime, or is halted. Call plan before.

        Args:
            manifest: the manifest as YAML text.
            idempotency_key: a text of your choice, new for each new job. The same key with the same manifest and code
                gets the same job again, so repeat a call that got no answer with the same key.
            code: the folder or zip with the training code, in the folder that this server may send; empty: the command
                needs no code.
            overrides: values that replace the manifest's, by path: {"learners": "2"}.
        """
        sha256 = self._send(code) if code else None
        job = self._client.jobs.submit(manifest, sha256, overrides, idempotency_key=idempotency_key)
        return answer([job_line(job)], f'show_job with job="{job.id}"')

    def halt(self, job: str, grace_seconds: int | None = None) -> str:
        """Halt a job. Its program gets SIGTERM and some time to save a checkpoint; the job can be resumed.

        Args:
            job: its id, the beginning of its id, or a unique name.
            grace_seconds: the time for the checkpoint; without it, the installation's default.
        """
        halted = self._client.job(job).halt(grace_seconds)
        return answer([job_line(halted), "The job is to be halted."], f'show_job with job="{halted.id}"')

    def profile(self, job: str, learner: int = 1, steps: int = 10) -> str:
        """Record where a running job spends its time: the calls in which each process of a learner was most often.
        The profile takes some seconds, and its files stay at the job.

        Args:
            job: its id, the beginning of its id, or a unique name.
            learner: number of the learner, from 1.
            steps: steps of the training to record, up to 100.
        """
        found = self._client.job(job)
        made = found.profile(learners=[learner], steps=steps)
        lines = [f"profile {made.id} of {found.id}", *(f"missing: {text}" for text in made.missing)]
        for file in made.files:
            lines.append(f"{file.process}: {file.kind}, {file.size} bytes")
            if file.kind == "stacks":
                calls = self._client.jobs.profiles.hottest(found.id, file, _CALLS)
                lines += [f"  {share:.0%} of the main thread's time in {call}" for call, share in calls]
        return answer(lines, f"`weft profile {found.id} --get {made.id}` gives a person the files")

    def _send(self, code: str) -> str | None:
        path = (self._root / code).resolve()
        if not path.is_relative_to(self._root):
            raise WeftError(f"code: {code!r} is outside of {self._root}, the folder whose files may be sent (--root)")
        with open_bundle(path) as bundle:
            if bundle is None:
                return None
            self._client.send_code(bundle)
            return bundle.sha256


def _differing(keys: list[dict[str, str]]) -> list[str]:
    lines = []
    for path in sorted({path for found in keys for path in found}):
        values = [found.get(path, "–") for found in keys]
        if path not in ("name", "description") and len(set(values)) > 1:
            lines.append(f"{path}: {' | '.join(values)}")
    return lines


def _best(job: Job, name: str) -> str:
    values = job.metric_values.get(name)
    return f"last {number(values.last)}, min {number(values.min)}, max {number(values.max)}" if values else "–"


def _next_call(job: Job) -> str:
    match job.state:
        case "QUEUED" | "PENDING":
            calls = ["why_waiting"]
        case "FAILED" | "HALTED":
            calls = ["why_failed", "logs"]
        case _:
            calls = ["metrics", "logs"]
    return " or ".join(f'{call} with job="{job.id}"' for call in calls)
