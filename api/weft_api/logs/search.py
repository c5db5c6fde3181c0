"""Searching a job's log: a bounded part of it in each call, so that no search holds the server or is hard to stop.

Patterns run on RE2, whose time is linear in the text whatever the pattern: one by a hostile user can't hang anything,
as it could in engines that backtrack. The price is that RE2 has no look-around and no back-references.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import re2

from weft_api.http.problems import invalid
from weft_api.logs.chunks import Chunk, ChunkReader
from weft_api.logs.read import SCAN_BYTES, LogFilter, ascending, lines_of, read_before, read_page
from weft_api.logs.schemas import LogLine, LogMatch

_SECONDS = 1.0
"""That one call searches."""
_ANSWER_BYTES = 4 << 20
_PATTERN_BYTES = 8 << 20
"""Memory for a compiled pattern and its states."""
_SPANS = 50
"""Marked in a line at most."""


class Pattern:
    """What is looked for in each line.

    Args:
        text: a substring, or with ``regex`` an RE2 pattern, in which ``^`` and ``$`` are a line's ends.
        case: whether upper and lower case differ.

    Raises:
        Problem: invalid_request: no valid pattern.
    """

    def __init__(self, text: str, *, regex: bool, case: bool) -> None:
        options = re2.Options()
        options.case_sensitive = case
        options.never_nl = True
        options.log_errors = False
        options.max_mem = _PATTERN_BYTES
        source = text if regex else re2.escape(text)
        # These mean the ends of the text, which in a chunk are not those of a line.
        self._line_by_line = regex and any(anchor in text for anchor in (r"\A", r"\z"))
        try:
            self._of_line = re2.compile(source, options)
            self._of_chunk = re2.compile(f"(?m:{source})", options)
        except re2.error as error:
            why = error.args[0].decode("utf-8", "replace") if error.args else "not valid"
            raise invalid(
                "query.q", f"not a regular expression: {why}", found=text, accepted="RE2's syntax, without look-around"
            ) from None

    def lines(self, chunk: Chunk) -> Iterator[int]:
        """The indexes of the chunk's lines that match, ascending."""
        if self._line_by_line:
            yield from (index for index, text in enumerate(chunk.texts()) if self._of_line.search(text))
            return
        # Through the whole chunk at once: only the lines that match cost Python anything.
        body, index, begin = chunk.body, 0, 0
        while begin < len(body) and (match := self._of_chunk.search(body, begin)):
            index += body.count(b"\n", begin, match.start())
            begin = body.find(b"\n", match.start()) + 1
            if not begin:
                return
            yield index
            index += 1

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The matching parts of a line: (begin, end) in characters."""
        found = []
        for match in self._of_line.finditer(text):
            if match.end() > match.start():
                found.append((match.start(), match.end()))
            if len(found) == _SPANS:
                break
        return found


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
        for index in pattern.lines(chunk):
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
    """The line with what stands around it, as far as possible from its own chunk."""
    before, line, after = texts[max(0, index - context) : index], texts[index], texts[index + 1 : index + 1 + context]
    if len(before) < context and texts[0].n > 0:
        before = read_before(reader, wanted, texts[0].n, context - len(before)).lines + before
    if len(after) < context:
        after = after + read_page(reader, wanted, texts[-1].n + 1, context - len(after)).lines
    return LogMatch(line=line, before=before, after=after, spans=pattern.spans(line.text))
