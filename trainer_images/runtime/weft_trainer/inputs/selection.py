"""Which of a data store's objects a learner gets: by patterns, and by its share."""

from __future__ import annotations

from collections.abc import Sequence

from weft_trainer.errors import DataError
from weft_trainer.globs import matcher
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


def _patterns(source: DataInput) -> str:
    parts = [f"{name} {list(given)}" for name in ("include", "exclude") if (given := getattr(source, name))]
    return " with ".join(parts)
