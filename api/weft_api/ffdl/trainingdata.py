"""``loglines`` and ``emetrics``: a job's log lines and metrics in pages, numbered from 1 by ``rindex``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from weft_api.auth import Principal
from weft_api.context import Context, Ctx
from weft_api.ffdl.auth import Viewer
from weft_api.ffdl.find import find
from weft_api.ffdl.since import SinceTime, parse_place
from weft_api.ffdl.translate import Json, emetrics, log_line, user_of
from weft_api.logs.chunks import ChunkReader, Wanted
from weft_api.logs.read import ascending, lines_of
from weft_api.logs.schemas import LogLine
from weft_api.metrics.read import read_records
from weft_api.metrics.schemas import RecordView
from weft_api.metrics.series import snapshot
from weft_core.store.scope import Scope

router = APIRouter(include_in_schema=False)

_PAGESIZE, _LARGEST = 10, 100_000
_RECORDS = 500

PageSize = Annotated[int, Query(description="Not above 0: 10.")]
Position = Annotated[int, Query(description="rindex of the first, or less than 0: so many before the end.")]


def _size(pagesize: int) -> int:
    return min(pagesize, _LARGEST) if pagesize > 0 else _PAGESIZE


def _first(pos: int, total: int) -> int:
    """rindex of the first that is wanted."""
    if pos < 0:
        return max(1, total + 1 + pos)
    return min(max(1, pos), total + 1)


@router.get("/v1/logs/{model_id}/loglines")
def get_loglines(
    model_id: str,
    context: Ctx,
    who: Viewer,
    since_time: SinceTime = "",
    pagesize: PageSize = _PAGESIZE,
    pos: Position = 0,
) -> StreamingResponse:
    """With `since_time` the first page from then on; `pos` is without meaning then, as the client sends it again when
    it goes on by time. `searchType` makes no difference."""
    since, pos = parse_place(since_time, pos)
    with context.database.transaction() as session:
        scope = who.scope(session)
        user = user_of(scope, find(scope, model_id))
    reader = ChunkReader(context, who, model_id)
    start = start_of(reader, since) if since is not None else _first(pos, reader.end()) - 1
    found = islice(lines_from(reader, start, since), _size(pagesize))
    return _models(log_line(line, model_id, user) for line in found)


def start_of(reader: ChunkReader, since: int) -> int:
    """The number of the first line at or after ``since``."""
    return reader.at_ms(since, Wanted())


def lines_from(reader: ChunkReader, start: int, since: int | None) -> Iterator[LogLine]:
    """The lines from ``start`` on that are there now."""
    end = reader.end()
    for chunk in ascending(reader, start, Wanted()) if start < end else ():
        if chunk.first_line >= end:
            return
        for line in lines_of(chunk, start):
            if since is None or line.t >= since:
                yield line


def record_since(scope: Scope, model_id: str, since: int) -> int:
    """The number of the first record at or after ``since``; that of the next to come when there is none."""
    page = read_records(scope, model_id, 1, 1, since)
    return page.records[0].rindex if page.records else page.total + 1


@router.get("/v1/logs/{model_id}/emetrics")
def get_emetrics(
    model_id: str,
    context: Ctx,
    who: Viewer,
    since_time: SinceTime = "",
    pagesize: PageSize = _PAGESIZE,
    pos: Position = 0,
) -> StreamingResponse:
    """As :func:`get_loglines`."""
    since, pos = parse_place(since_time, pos)
    with context.database.transaction() as session:
        scope = who.scope(snapshot(session))
        user = user_of(scope, find(scope, model_id))
        if since is not None:
            start = record_since(scope, model_id, since)
        else:
            start = _first(pos, read_records(scope, model_id, 1, 0).total)
    found = islice(records_from(context, who, model_id, start, since), _size(pagesize))
    return _models(emetrics(record, model_id, user) for record in found)


def records_from(
    context: Context, who: Principal, model_id: str, start: int, since: int | None
) -> Iterator[RecordView]:
    """The records from number ``start`` on that are there now."""
    while True:
        with context.database.transaction() as session:
            page = read_records(who.scope(snapshot(session)), model_id, start, _RECORDS)
        for record in page.records:
            if since is None or record.t >= since:
                yield record
        start += _RECORDS
        if start > page.total:
            return


def _models(found: Iterator[Json]) -> StreamingResponse:
    """The answer, whatever its size: sent as it is read. What can't be read at all is an error."""
    head = list(islice(found, _PAGESIZE))

    def parts() -> Iterator[str]:
        yield '{"models":['
        yield _joined(head)
        while more := list(islice(found, _RECORDS)):
            yield "," + _joined(more)
        yield "]}"

    return StreamingResponse(parts(), media_type="application/json")


def _joined(models: list[dict[str, Any]]) -> str:
    return json.dumps(models)[1:-1]
