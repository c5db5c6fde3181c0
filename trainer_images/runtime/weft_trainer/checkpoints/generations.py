"""Checkpoints in a store: complete generations of a folder, whose files are kept once by content.

``files/<sha256>`` holds contents, ``generations/<id>.json`` lists one state of the folder and is written after all of
its files, so that a reader sees complete states only. An id is ``<epoch>-<number>``: each learner that begins takes the
epoch after the highest it finds, so an agent of an older attempt that does not know yet that it is over can never write
anything newer than its successor. Ranks above 0 have the same below ``learner-<n>/``.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from weft_trainer.errors import DataError
from weft_trainer.stores.store import Store

_KEY = re.compile(r"(?:learner-(\d+)/)?generations/(\d+-\d+)\.json")


class Entry(NamedTuple):
    """A file (with its content's hash), or a symlink (with its target)."""

    path: str
    size: int = 0
    sha256: str = ""
    mtime_ns: int = 0
    link: str | None = None


class Generation(NamedTuple):
    """``until``: when the folder was last seen to be in this state (seconds since the epoch); None: not known."""

    id: str
    entries: tuple[Entry, ...]
    until: float | None = None
    about: Mapping[str, Any] = {}
    """Its job and attempt, and the time ``at`` which it was stored."""
    shared: bool = False
    """Whether it is of another job, which this job began with, and in the store of that job."""

    @property
    def contents(self) -> set[str]:
        return {entry.sha256 for entry in self.entries if entry.link is None}

    @property
    def since(self) -> float:
        """When the newest of its files was written (seconds since the epoch): the folder was in this state from then
        on."""
        newest = max((entry.mtime_ns for entry in self.entries), default=0) / 1e9
        return newest if self.until is None else min(newest, self.until)


class GenerationList:
    """One learner's generations in a store."""

    def __init__(self, store: Store, rank: int, ids: Sequence[str] = ()) -> None:
        self._store = store
        self._base = f"learner-{rank + 1}/" if rank else ""
        self.ids: builtins.list[str] = sorted(ids)
        """In order, the newest last; as far as known."""
        self._read: dict[str, Generation] = {}

    def load(self) -> None:
        """List the generations in the store."""
        self.ids = generation_ids(self._store, self._base + "generations/").get(self._base, [])

    @property
    def next_epoch(self) -> int:
        return 1 + max((int(generation_id.partition("-")[0]) for generation_id in self.ids), default=0)

    def read(self, generation_id: str) -> Generation:
        """Raises: DataError."""
        if generation_id in self._read:
            return self._read[generation_id]
        key = self._manifest(generation_id)
        data = self._store.read(key)
        try:
            if data is None:
                raise ValueError("it is gone")
            document = json.loads(data)
            entries = tuple(Entry(**entry) for entry in document.pop("files"))
            until = document.pop("until", None)
            generation = Generation(generation_id, entries, None if until is None else float(until), document)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"checkpoint {key} can't be read: {error}") from None
        self._read[generation_id] = generation
        return generation

    def publish(self, generation: Generation) -> None:
        """All of its contents must be stored by now. A second call changes how long the state is known to have
        lasted."""
        document = {
            **generation.about,
            "generation": generation.id,
            "until": generation.until,
            "files": [entry._asdict() for entry in generation.entries],
        }
        self._store.put_bytes(self._manifest(generation.id), json.dumps(document, indent=1).encode())
        self._read[generation.id] = generation
        if generation.id not in self.ids:
            self.ids.append(generation.id)

    def contents(self) -> set[str]:
        """The contents of all generations that can be read."""
        found: set[str] = set()
        for generation_id in self.ids:
            try:
                found |= self.read(generation_id).contents
            except DataError:
                continue
        return found

    def collect(self, keep: int, abandoned: Collection[str] = ()) -> None:
        """Drop generations that are ``abandoned``, of the others all but the last ``keep``, and contents that only the
        dropped ones had. Contents that no generation has stay (see ``sweep``)."""
        kept = [generation_id for generation_id in self.ids if generation_id not in abandoned][-keep:]
        dropped = [generation_id for generation_id in self.ids if generation_id not in kept]
        if not dropped:
            return
        used = {sha256 for generation_id in kept for sha256 in self.read(generation_id).contents}
        garbage: set[str] = set()
        for generation_id in dropped:
            try:
                garbage |= self.read(generation_id).contents
            except DataError:
                continue  # unreadable: its contents stay, the list goes
        # The lists first: a reader must never find a list whose contents are going.
        self._store.delete([self._manifest(generation_id) for generation_id in dropped])
        self._store.delete([self.content(generation_id) for generation_id in sorted(garbage - used)])
        self.ids = kept
        self._read = {key: generation for key, generation in self._read.items() if key in kept}

    def sweep(self) -> None:
        """Drop contents that no generation has: killed agents had sent them. Only for an agent that surely is
        the only agent of its learner, and has just published. Raises: DataError."""
        used = {self.content(sha256) for generation_id in self.ids for sha256 in self.read(generation_id).contents}
        found = [stored.key for stored in self._store.list(f"{self._base}files/")]
        self._store.delete([key for key in found if key not in used])

    def content(self, sha256: str) -> str:
        """The key of a file's content."""
        return f"{self._base}files/{sha256}"

    def _manifest(self, generation_id: str) -> str:
        return f"{self._base}generations/{generation_id}.json"


def generation_id(epoch: int, number: int) -> str:
    return f"{epoch:06d}-{number:06d}"


def generation_ids(store: Store, prefix: str = "") -> dict[str, list[str]]:
    """The generations in a store below ``prefix``, in order, by the folder ("" or ``learner-<n>/``) they are in."""
    found: dict[str, list[str]] = {}
    for stored in store.list(prefix):
        if match := _KEY.fullmatch(stored.key):
            folder = f"learner-{match[1]}/" if match[1] else ""
            found.setdefault(folder, []).append(match[2])
    return {folder: sorted(ids) for folder, ids in found.items()}


def all_lists(store: Store) -> dict[int, GenerationList]:
    """The generations of all learners that have any, by rank."""
    ranks = {0 if not folder else int(folder[8:-1]) - 1: ids for folder, ids in generation_ids(store).items()}
    return {rank: GenerationList(store, rank, ids) for rank, ids in sorted(ranks.items())}
