"""Searching a job's log: a bounded part of it in each call, so that no search holds the server or is hard to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from weft_api.http.patterns import Pattern
from weft_api.logs.chunks import ChunkReader
from weft_api.logs.read import SCAN_BYTES, LogFilter, ascending, lines_of, read_before, read_page
from weft_api.logs.schemas import LogLine, LogMatch

_SECONDS = 1.0
"""The most bytes that one call searches."""
_ANSWER_BYTES = 4 << 20


@dataclass(frozen=True)
class Found:
    matches: list[LogMatch]
    next: int
    more: bool
    """There is more to search."""


def search(
    reader: ChunkReader,
    wanted: LogFilter,
    pattern: Pattern,
    start: int,
    *,
    context: int,
    limit: int,
    cancelled: Callable[[], bool],
) -> Found:
    """Lines from ``start`` on that match, up to ``limit``, or as many as a bounded part of the log has.

    Args:
        context: lines before and after each match, of those that ``wanted`` takes.
        cancelled: asked between chunks; what was found up to then is returned.
    """
    end = reader.end()
    until = time.monotonic() + _SECONDS
    matches: list[LogMatch] = []
    read = answer = 0
    position = min(start, end) if start > end else start
    for chunk in ascending(reader, start, wanted) if start < end else ():
        texts: list[LogLine] = []
        for index in pattern.lines(chunk.body):
            number = chunk.first_line + index
            if number < start:
                continue
            if len(matches) >= limit or answer >= _ANSWER_BYTES:
                return Found(matches, number, more=True)
            texts = texts or list(lines_of(chunk, 0))
            match = _match(reader, wanted, pattern, texts, index, context)
            answer += sum(len(line.text) for line in (match.line, *match.before, *match.after))
            matches.append(match)
        position = chunk.end
        read += len(chunk.body)
        if read >= SCAN_BYTES or time.monotonic() > until or cancelled():
            return Found(matches, position, more=position < end)
    return Found(matches, max(position, end), more=False)


def _match(
    reader: ChunkReader, wanted: LogFilter, pattern: Pattern, texts: list[LogLine], index: int, context: int
) -> LogMatch:
    """The line with the lines around it, as far as possible from its own chunk."""
    before, line, after = texts[max(0, index - context) : index], texts[index], texts[index + 1 : index + 1 + context]
    if len(before) < context and texts[0].n > 0:
        before = read_before(reader, wanted, texts[0].n, context - len(before)).lines + before
    if len(after) < context:
        after = after + read_page(reader, wanted, texts[-1].n + 1, context - len(after)).lines
    return LogMatch(line=line, before=before, after=after, spans=pattern.spans(line.text))
