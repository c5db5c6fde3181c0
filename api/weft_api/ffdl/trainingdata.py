"""``loglines`` and ``emetrics``: a job's log lines and metrics in pages, numbered from 1 by ``rindex``.

Where a page begins, by ``pos``:

- above 0, the ``rindex`` of its first line; 0, at the beginning;
- with ``since_time``, an offset: so many lines behind the first one that is not older;
- below 0, pages are counted from the end, and the page is the one that holds the line ``-pos`` from the end: with
  ``pagesize=20``, -1 to -20 are the last 20 lines, -21 to -40 the 20 before them. (FfDL skipped ``-pos - 1`` lines:
  the same page, wherever FfDL's web page turns to.) The first page is full even where it overlaps the next one. With
  ``since_time``, older lines are left out of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query

from weft_api.access.auth import Principal
from weft_api.context import Context, Ctx
from weft_api.ffdl.auth import Viewer
from weft_api.ffdl.lookup import find_model
from weft_api.ffdl.since_time import PageStart, SinceTime, parse_page_start
from weft_api.ffdl.translate import Json, emetrics, log_line, user_of
from weft_api.logs.chunks import ChunkFilter, ChunkReader
from weft_api.logs.read import ascending, lines_of
from weft_api.logs.schemas import LogLine
from weft_api.metrics.read import read_records
from weft_api.metrics.schemas import RecordView
from weft_api.metrics.series import snapshot
from weft_api.streaming.downloads import Download
from weft_core.store.scope import Scope

router = APIRouter(include_in_schema=False)

_PAGESIZE, _LARGEST = 10, 100_000
_RECORDS = 500

PageSize = Annotated[int, Query(description="Not above 0: 10.")]
Position = Annotated[int, Query(description="Where the page begins; below 0, which one, counted from the end.")]


def _size(pagesize: int) -> int:
    return min(pagesize, _LARGEST) if pagesize > 0 else _PAGESIZE


def _begin(page: PageStart, size: int, since: int | None, end: int) -> int:
    """How many lines stand before the page.

    Args:
        since: the number of the first line, from 0, that ``since_time`` lets in; None: there is no ``since_time``.
        end: how many lines there are.
    """
    earliest = since or 0
    if page.last is not None:
        return max(earliest, end - page.last)
    if page.pos < 0:
        pages = (min(-page.pos, end) + size - 1) // size
        return max(earliest, end - pages * size)
    return min(end, page.pos - 1 if since is None and page.pos else earliest + page.pos)


@router.get("/v1/logs/{model_id}/loglines")
def get_loglines(
    model_id: str,
    context: Ctx,
    who: Viewer,
    since_time: SinceTime = "",
    pagesize: PageSize = _PAGESIZE,
    pos: Position = 0,
) -> Download:
    """`searchType` makes no difference."""
    page = parse_page_start(since_time, pos)
    with context.database.transaction() as session:
        scope = who.scope(session)
        user = user_of(scope, find_model(scope, model_id))
    reader = ChunkReader(context, who, model_id)
    size = _size(pagesize)
    since = None if page.since is None else start_of(reader, page.since)
    start = _begin(page, size, since, reader.end())
    found = islice(lines_from(reader, start, page.since), size)
    return _models(context, who, (log_line(line, model_id, user) for line in found))


def start_of(reader: ChunkReader, since: int) -> int:
    """The number of the first line at or after ``since``."""
    return reader.at_ms(since, ChunkFilter())


def lines_from(reader: ChunkReader, start: int, since: int | None) -> Iterator[LogLine]:
    """The lines from ``start`` on that are there now."""
    end = reader.end()
    for chunk in ascending(reader, start, ChunkFilter()) if start < end else ():
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
) -> Download:
    """Like :func:`get_loglines`."""
    page = parse_page_start(since_time, pos)
    size = _size(pagesize)
    with context.database.transaction() as session:
        scope = who.scope(snapshot(session))
        user = user_of(scope, find_model(scope, model_id))
        since = None if page.since is None else record_since(scope, model_id, page.since) - 1
        start = _begin(page, size, since, read_records(scope, model_id, 1, 0).total) + 1
    found = islice(records_from(context, who, model_id, start, page.since), size)
    return _models(context, who, (emetrics(record, model_id, user) for record in found))


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


def _models(context: Context, who: Principal, found: Iterator[Json]) -> Download:
    """The answer, of any size, sent as it is read. If it can't be read at all, that is an error."""
    head = list(islice(found, _PAGESIZE))

    def parts() -> Iterator[str]:
        yield '{"models":['
        yield _joined(head)
        while more := list(islice(found, _RECORDS)):
            yield "," + _joined(more)
        yield "]}"

    return Download(context, who, parts(), media_type="application/json")


def _joined(models: list[dict[str, Any]]) -> str:
    return json.dumps(models)[1:-1]
