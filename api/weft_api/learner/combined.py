"""Reports: the heartbeat, the log lines and the metrics of a learner in one call, which costs little more than one of
the three. Those of an attempt that wait are stored together, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError

from weft_api.access.attempts import AttemptToken, fence, granted_learners
from weft_api.access.learner_calls import LearnerCall
from weft_api.context import Context, Shared
from weft_api.http.bodies import MIB, parse_json, validated
from weft_api.http.problems import INVALID_REQUEST, TOO_LARGE, Problem, ProblemBody, problem_body
from weft_api.learner.heartbeats import answer_beats, note_beats
from weft_api.learner.schemas import HeartbeatAnswer, HeartbeatCall, ReportAnswer
from weft_api.logs.batches import Batch, read_batch
from weft_api.logs.ingest import announce, append
from weft_api.metrics.folding import FOLDING
from weft_api.metrics.ingest import read_call, take_calls
from weft_api.metrics.schemas import MetricsCall
from weft_api.streaming.batch_queue import BatchQueue

LOG_BYTES, METRIC_BYTES = 8 * MIB, 2 * MIB
"""The most bytes of JSON in a call: 1 MiB of text, in JSON's escapes, and 1 MiB of metrics."""

PartName = Literal["heartbeat", "logs", "metrics"]
Part = TypeVar("Part")


@dataclass
class Taken:
    """What has become of a report."""

    job_id: str
    attempt: int
    rank: int
    learners: int
    """Of the job."""
    answer: ReportAnswer


@dataclass
class _Report:
    head: LearnerCall
    heartbeat: HeartbeatCall | None = None
    logs: Batch | None = None
    metrics: MetricsCall | None = None
    answer: ReportAnswer = field(default_factory=ReportAnswer)


# A transaction costs as much as some ten reports.
QUEUE: Shared[BatchQueue[bytes, Taken]] = Shared(lambda _: BatchQueue(groups_at_once=1, apart=0.1))


async def accept(context: Context, token: AttemptToken, body: bytes) -> Taken:
    """Pass one body to :func:`take_in`, together with those of the same attempt that wait. Raises what it finds."""
    return await QUEUE.of(context).run(token.sha256, body, lambda bodies: take_in(context, token, bodies))


def take_in(context: Context, token: AttemptToken, bodies: Sequence[bytes]) -> list[Taken | Exception]:
    """Note and append what one attempt's learners report, all in one transaction. Parts that are there already change
    nothing.

    Args:
        bodies: each a ReportCall, as it came.

    Returns:
        The outcome of each; a Problem (stale_attempt) or a RequestValidationError concerns that call only.
    """
    reports: list[_Report | Exception] = []
    for body in bodies:
        try:
            reports.append(_read(body))
        except (Problem, RequestValidationError) as error:
            reports.append(error)
    valid = [report for report in reports if isinstance(report, _Report)]
    try:
        outcomes = iter(_store(context, token, valid) if valid else [])
    except Problem as error:
        return [error if isinstance(report, _Report) else report for report in reports]
    return [next(outcomes) if isinstance(report, _Report) else report for report in reports]


def _read(body: bytes) -> _Report:
    """Raises Problem and RequestValidationError if the call is not valid. A part that is not is refused alone."""
    told = parse_json(body)
    report = _Report(validated(LearnerCall, told))
    head = {"rank": report.head.rank, "instance": report.head.instance}

    def part(name: PartName, read: Callable[[Any], Part]) -> Part | None:
        content = told.get(name)
        if content is None:
            return None
        try:
            if not isinstance(content, dict):
                raise Problem(INVALID_REQUEST, f"{name}: not an object")
            if name == "metrics" and len(body) > METRIC_BYTES and len(json.dumps(content)) > METRIC_BYTES:
                raise Problem(TOO_LARGE, f"the metrics of a report may have {METRIC_BYTES} bytes")
            return read({**content, **head})
        except (Problem, RequestValidationError) as error:
            report.answer.refused[name] = _refusal(error)
            return None

    report.heartbeat = part("heartbeat", lambda content: validated(HeartbeatCall, content))
    report.logs = part("logs", lambda content: read_batch({**content, "late": False}))
    report.metrics = part("metrics", read_call)
    return report


def _store(context: Context, token: AttemptToken, reports: Sequence[_Report]) -> list[Taken | Exception]:
    limits = context.settings.limits
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=False)
        granted = granted_learners(session, attempt, [(report.head.rank, report.head.instance) for report in reports])
        own = [report for report, refusal in zip(reports, granted, strict=True) if refusal is None]
        with_logs = [report for report in own if report.logs]
        refused, chunks = append(session, job, attempt, [report.logs for report in with_logs if report.logs], limits)
        cursor = take_calls(session, job, attempt, [report.metrics for report in own if report.metrics], limits)
        session.flush()
        beats = [report.heartbeat for report in own if report.heartbeat]
        noted = note_beats(context, session, token, beats)
    announce(context, job.id, chunks)
    FOLDING.of(context).fold_if_due(cursor)
    for report, refusal in zip(with_logs, refused, strict=True):
        if refusal is not None:
            report.answer.refused["logs"] = _refusal(refusal)
    answers = iter(answer_beats(context, token, beats, noted))
    outcomes: list[Taken | Exception] = []
    for report, stale in zip(reports, granted, strict=True):
        answer = next(answers) if stale is None and report.heartbeat else None
        if isinstance(answer, HeartbeatAnswer):
            report.answer.heartbeat = answer
        # Lines and metrics are stored by now. A learner that is to leave hears so, as from a heartbeat alone.
        wrong = stale or (answer if isinstance(answer, Exception) else None)
        outcomes.append(wrong or Taken(job.id, attempt.n, report.head.rank, job.learners, report.answer))
    return outcomes


def _refusal(error: Problem | RequestValidationError) -> ProblemBody:
    if isinstance(error, Problem):
        return problem_body(error.kind, error.text)
    first = error.errors()[0]
    return problem_body(INVALID_REQUEST, f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}")
