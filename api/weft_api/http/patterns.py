"""Patterns of users, for lines of logs.

They run on RE2, whose time is linear in the text whatever the pattern: a hostile user's pattern can't hang anything, as
it could in engines that backtrack. The price is that RE2 has no look-around and no back-references.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import re2

ACCEPTED = "RE2's syntax, without look-around"
_SEARCH_BYTES, _RULE_BYTES = 8 << 20, 1 << 20
"""Memory for a compiled pattern and its states. Those of rules are kept, and there are many."""
_SPANS = 50
"""The most matches that are marked in a line."""


class BadPattern(Exception):
    """A text is no regular expression. The message says why."""


class Pattern:
    """The text or the pattern that each line is searched for.

    Args:
        text: a substring, or with ``regex`` an RE2 pattern, in which ``^`` and ``$`` are a line's ends.
        case: whether upper and lower case differ.
        memory: bytes for the compiled pattern.

    Raises:
        BadPattern: no valid pattern.
    """

    def __init__(self, text: str, *, regex: bool, case: bool, memory: int = _SEARCH_BYTES) -> None:
        options = re2.Options()
        options.case_sensitive = case
        options.never_nl = True
        options.log_errors = False
        options.max_mem = memory
        source = text if regex else re2.escape(text)
        # These mean the ends of the text, which in several lines are not those of a line.
        self._line_by_line = regex and any(anchor in text for anchor in (r"\A", r"\z"))
        try:
            self._of_line = re2.compile(source, options)
            self._of_lines = re2.compile(f"(?m:{source})", options)
        except re2.error as error:
            why = error.args[0].decode("utf-8", "replace") if error.args else "not valid"
            raise BadPattern(f"not a regular expression: {why}") from None

    def lines(self, body: bytes) -> Iterator[int]:
        """The indexes of the lines that match, ascending. Each line ends with a newline."""
        if self._line_by_line:
            texts = body.split(b"\n")[:-1]
            yield from (index for index, text in enumerate(texts) if self._of_line.search(text))
            return
        # Through all lines at once: only those that match cost Python anything.
        index, begin = 0, 0
        while begin < len(body) and (match := self._of_lines.search(body, begin)):
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


@lru_cache(64)
def rule_pattern(text: str) -> Pattern:
    """The pattern of a manifest's rule ``log /…/``. Raises BadPattern."""
    return Pattern(text, regex=True, case=True, memory=_RULE_BYTES)
