"""The patterns of manifests: for the objects of data stores, and for results."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence


def matcher(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """Whether a key is matched by any of ``include`` (none: all are) and by none of ``exclude``."""
    taken, left = _any(include), _any(exclude)
    return lambda key: bool((not include or taken.fullmatch(key)) and not (exclude and left.fullmatch(key)))


def _any(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{regex(pattern)})" for pattern in patterns), re.DOTALL)


def regex(pattern: str) -> str:
    """A glob as a regular expression: ``*`` and ``?`` stay in a folder, ``**/`` is any folders or none, ``[a-c]`` and
    ``[!a-c]`` one letter. A pattern without '/' is for the name in whatever folder; one that ends with '/' for all
    that is below."""
    if "/" not in pattern.rstrip("/"):
        pattern = "**/" + pattern
    if pattern.endswith("/"):
        pattern += "**"
    found, at = "", 0
    while at < len(pattern):
        letter = pattern[at]
        end = pattern.find("]", at + 2 + pattern.startswith("[!", at)) if letter == "[" else -1
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            found, at = found + "(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            found, at = found + ".*", at + 2
        elif letter == "*":
            found, at = found + "[^/]*", at + 1
        elif letter == "?":
            found, at = found + "[^/]", at + 1
        elif end > 0:
            negated = pattern[at + 1] == "!"
            inside = pattern[at + 1 + negated : end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            found, at = found + ("[^/" if negated else "[") + inside + "]", end + 1
        else:
            found, at = found + re.escape(letter), at + 1
    return found
