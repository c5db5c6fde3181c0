"""Which of a data store's objects a learner gets: by patterns, and by its share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from weft_trainer.errors import DataError
from weft_trainer.spec import DataInput
from weft_trainer.stores.store import Stored


def select(objects: Sequence[Stored], source: DataInput) -> list[Stored]:
    """The objects that the patterns leave, in order of key. Raises: DataError, if they leave none of some."""
    chosen = fitting(objects, source)
    files = sum(map(_is_file, objects))
    if files and not chosen:
        place = source.location.words
        raise DataError(f"data store '{source.id}': {_patterns(source)} leaves none of {files:,} objects at {place}")
    return chosen


def fitting(objects: Sequence[Stored], source: DataInput) -> list[Stored]:
    """The objects that the patterns leave, in order of key."""
    wanted = matcher(source.include, source.exclude)
    return sorted(
        (stored for stored in objects if _is_file(stored) and wanted(stored.key)), key=lambda stored: stored.key
    )


def _is_file(stored: Stored) -> bool:
    """Some tools mark an empty folder by an object 'folder/', which is no file."""
    return bool(stored.key) and not stored.key.endswith("/")


def share(chosen: list[Stored], source: DataInput, rank: int, learners: int) -> list[Stored]:
    """With ``shard: learner`` object number i (from 0) is rank (i mod learners)'s: of the same listing all learners
    together get every object, and no two of them the same. Raises: DataError, if there are fewer objects than learners.
    """
    if source.shard != "learner" or learners == 1 or not chosen:
        return chosen
    if len(chosen) < learners:
        found = f"{len(chosen)} objects among {learners} learners"
        raise DataError(f"data store '{source.id}': shard: learner can't share {found}")
    return chosen[rank::learners]


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


def _patterns(source: DataInput) -> str:
    parts = [f"{name} {list(given)}" for name in ("include", "exclude") if (given := getattr(source, name))]
    return " with ".join(parts)
