"""HTTP for metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from weft_api.access.auth import Viewer
from weft_api.access.lookups import find_job
from weft_api.context import Ctx
from weft_api.http.parameters import AttemptNumber, LearnerId, Since, parse_since
from weft_api.http.problems import NOT_FOUND, responses
from weft_api.metrics import export, read
from weft_api.metrics.schemas import Kind, Names, QueryAnswer, RecordPage, SeriesList
from weft_api.metrics.series import SeriesFilter, load, snapshot
from weft_api.streaming.downloads import Download

router = APIRouter(prefix="/api/v1", tags=["metrics"], responses=responses(NOT_FOUND))

_End = Annotated[
    float | None,
    Query(
        allow_inf_nan=False,
        ge=-1e18,
        le=1e18,
        description="A bound of the range, in the unit of `x`. The range includes it.",
        examples=[500],
    ),
]


@router.get("/jobs/{job_id}/metrics", summary="List a job's series")
def get_metrics(
    job_id: str,
    context: Ctx,
    who: Viewer,
    name: Names = [],  # noqa: B006 - FastAPI copies it
    kind: Kind = None,
    learner: LearnerId = None,
    attempt: AttemptNumber = None,
) -> SeriesList:
    """Each metric of each learner in each attempt has a series. The list shows its newest and best values."""
    with context.database.transaction() as session:
        scope = who.scope(snapshot(session))
        find_job(scope, job_id)
        wanted = SeriesFilter(kind, learner, attempt, name)
        return read.list_series(scope, job_id, wanted, context.settings.limits)


@router.get("/jobs/{job_id}/metrics/query", summary="Read series for a chart of a given width")
def query_metrics(
    job_id: str,
    context: Ctx,
    who: Viewer,
    name: Names = [],  # noqa: B006
    kind: Kind = "user",
    learner: LearnerId = None,
    attempt: AttemptNumber = None,
    x: Annotated[Literal["step", "time"], Query(description="Time is in milliseconds since the epoch.")] = "step",
    start: Annotated[_End, Query(alias="from")] = None,
    stop: Annotated[_End, Query(alias="to")] = None,
    width: Annotated[int, Query(ge=1, le=4000, description="The largest number of buckets.", examples=[600])] = 600,
) -> QueryAnswer:
    """The answer has the smallest, the largest and the last value of each bucket, however many points there are. A
    series with at most `width` points in the range comes with each point. All series have the same buckets."""
    with context.database.transaction() as session:
        scope = who.scope(snapshot(session))
        find_job(scope, job_id)
        return read.query(scope, job_id, SeriesFilter(kind, learner, attempt, name), read.Range(x, start, stop, width))


@router.get(
    "/jobs/{job_id}/metrics/export",
    summary="Download all points of series as a file",
    response_class=Download,
    responses={
        200: {"content": {media.split(";")[0]: {"schema": {"type": "string"}} for media in export.MEDIA.values()}}
    },
)
def export_metrics(
    job_id: str,
    context: Ctx,
    who: Viewer,
    form: Annotated[export.Format, Query(alias="format")] = "csv",
    name: Names = [],  # noqa: B006
    kind: Kind = None,
    learner: LearnerId = None,
    attempt: AttemptNumber = None,
) -> Download:
    """Each point is a row: name, group, kind, learner, attempt, step, time, value. The file has all points,
    unrounded."""
    with context.database.transaction() as session:
        scope = who.scope(snapshot(session))
        find_job(scope, job_id)
        size, pieces = export.export(scope, load(scope, job_id, SeriesFilter(kind, learner, attempt, name)), form)
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{job_id}-metrics.{form}"',
    }
    return Download(context, who, pieces, media_type=export.MEDIA[form], headers=headers)


@router.get("/jobs/{job_id}/metrics/records", summary="Read the records that a training reported")
def get_records(
    job_id: str,
    context: Ctx,
    who: Viewer,
    start: Annotated[int, Query(alias="from", ge=1, le=2**53, description="The first `rindex` to read.")] = 1,
    since: Since = None,
    limit: Annotated[int, Query(ge=1, le=2000, description="Records per page.")] = 500,
) -> RecordPage:
    """The records come in order, numbered from 1 without gaps. They do not include records of system metrics. With
    `since`, the page starts with the first record that is not older."""
    after = parse_since(since)
    with context.database.transaction() as session:
        scope = who.scope(snapshot(session))
        find_job(scope, job_id)
        return read.read_records(scope, job_id, start, limit, None if after is None else int(after.timestamp() * 1000))
