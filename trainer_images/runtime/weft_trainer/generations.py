"""How checkpoints stand in a store: complete generations of a folder, whose files are kept once by content.

``files/<sha256>`` holds contents, ``generations/<id>.json`` lists one state of the folder and is written after all of
its files, so that a reader sees complete states only. An id is ``<epoch>-<number>``: each learner that begins takes the
epoch after the highest it finds, so an agent of an older attempt that does not know yet that it is over can never write
anything newer than its successor. Ranks above 0 have the same below ``learner-<n>/``.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weft_trainer.errors import DataError
from weft_trainer.stored import Store


@dataclass(frozen=True)
class Entry:
    """A file (with its content's hash), or a symlink (with its target)."""

    path: str
    size: int = 0
    sha256: str = ""
    mtime_ns: int = 0
    link: str | None = None


@dataclass(frozen=True)
class Generation:
    id: str
    entries: tuple[Entry, ...]

    @property
    def contents(self) -> set[str]:
        return {entry.sha256 for entry in self.entries if entry.link is None}


class GenerationList:
    """One learner's generations in a store."""

    def __init__(self, store: Store, rank: int) -> None:
        self._store = store
        self._base = f"learner-{rank + 1}/" if rank else ""
        self.ids: builtins.list[str] = []
        """In order, the newest last; as far as known."""

    def load(self) -> None:
        """Look at what there is."""
        prefix = self._base + "generations/"
        self.ids = sorted(
            one.key[len(prefix) : -len(".json")]
            for one in self._store.list(prefix)
            if one.key.startswith(prefix) and one.key.endswith(".json")
        )

    @property
    def next_epoch(self) -> int:
        return 1 + max((int(one.partition("-")[0]) for one in self.ids), default=0)

    def read(self, generation_id: str) -> Generation:
        """Raises: DataError."""
        key = self._manifest(generation_id)
        data = self._store.read(key)
        try:
            if data is None:
                raise ValueError("it is gone")
            entries = tuple(Entry(**entry) for entry in json.loads(data)["files"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"checkpoint {key} can't be read: {error}") from None
        return Generation(generation_id, entries)

    def publish(self, generation: Generation, about: dict[str, Any]) -> None:
        """All of its contents must be stored by now."""
        document = {"generation": generation.id, **about, "files": [asdict(entry) for entry in generation.entries]}
        self._store.put_bytes(self._manifest(generation.id), json.dumps(document, indent=1).encode())
        self.ids.append(generation.id)

    def collect(self, keep: int, newest: Sequence[Generation]) -> None:
        """Drop all but the last ``keep`` generations, and contents that only those had. Contents which no generation
        has are left alone: they may belong to one that is being written."""
        dropped, kept = self.ids[:-keep], self.ids[-keep:]
        if not dropped:
            return
        known = {one.id: one for one in newest}
        used = _contents(known.get(one) or self.read(one) for one in kept)
        garbage: set[str] = set()
        for one in dropped:
            try:
                garbage |= self.read(one).contents
            except DataError:
                continue  # unreadable: its contents stay, the list goes
        # The list first: a reader must never find one whose contents are going.
        self._store.delete([self._manifest(one) for one in dropped])
        self._store.delete([self.content(one) for one in sorted(garbage - used)])
        self.ids = kept

    def content(self, sha256: str) -> str:
        """The key of a file's content."""
        return f"{self._base}files/{sha256}"

    def _manifest(self, generation_id: str) -> str:
        return f"{self._base}generations/{generation_id}.json"


def generation_id(epoch: int, number: int) -> str:
    return f"{epoch:06d}-{number:06d}"


def _contents(generations: Iterable[Generation]) -> set[str]:
    return {sha256 for one in generations for sha256 in one.contents}


def newest_usable(
    lists: GenerationList, take: Callable[[Generation], None], warn: Callable[[str], None]
) -> Generation | None:
    """The newest generation that ``take`` accepts; one that is damaged makes room for the one before it."""
    for one in reversed(lists.ids):
        try:
            generation = lists.read(one)
            take(generation)
        except DataError as error:
            warn(f"checkpoint {one} can't be used: {error}")
            continue
        return generation
    return None
