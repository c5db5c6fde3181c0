"""The last checkpoint of a gang, brought back: for each learner, the state in which all of them were at the same time.

Each learner stores its own folder by itself, so their newest generations may be of different moments: one may have
stored step 20 when another was killed before it could. A generation says from when (its newest file) until when (the
last scan that found it unchanged) its folder was in that state; generations whose times overlap belong together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from weft_trainer.checkpoints.generations import Entry, Generation, GenerationList, all_lists
from weft_trainer.errors import DataError
from weft_trainer.stores.paths import below
from weft_trainer.stores.retry import Temporary, patiently
from weft_trainer.stores.store import Store
from weft_trainer.words import count

_AT_ONCE = 8

Cut = Mapping[int, Generation]
"""By rank."""


class Restored(NamedTuple):
    """The files that came back; empty: there was no checkpoint."""

    cut: Mapping[int, Generation] = {}
    placed: Mapping[str, tuple[int, Entry]] = {}
    """By path, the rank that the file comes from, and its entry."""

    trouble: str = ""
    """Why no checkpoint came back although there was one, or a warning about it."""

    @property
    def files(self) -> int:
        return len(self.placed)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(entry.size for _, entry in self.placed.values())

    @property
    def origin(self) -> dict[str, Any] | None:
        """Which checkpoint this is, for the service: rank 0's, or that of the lowest rank that has a checkpoint."""
        if not self.cut:
            return None
        newest = self.cut[min(self.cut)]
        return {
            "generation": newest.id,
            "job": newest.about.get("job"),
            "attempt": newest.about.get("attempt"),
            "at": newest.about.get("at"),
            "files": self.files,
            "size": self.size,
        }

    def words(self, job_id: str) -> str:
        """For the events of the job ``job_id``."""
        if not self.cut:
            return self.trouble
        origin = self.origin or {}
        at, attempt = origin["at"], origin["attempt"]
        known = isinstance(at, (int, float))
        when = f" of {datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M:%S} UTC" if known else ""
        other = f" of {origin['job']}" if origin["job"] not in (job_id, None) else ""
        whose = f" by attempt {attempt}{other}" if attempt else ""
        return f"{count(self.files, 'file')} of the checkpoint{when}{whose}{self.trouble}"


class Restoring:
    """For one learner: the search for its files, and their download.

    Args:
        shared: the store of another job's checkpoints, which this job began with. They count as older than its own.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        folder: Path,
        patience: float,
        warn: Callable[[str], None],
        shared: Store | None = None,
    ) -> None:
        self._store = store
        self._shared = shared
        self._rank = rank
        self._folder = folder
        self._patience = patience
        self._warn = warn
        self._damaged: set[tuple[int, str, bool]] = set()
        self.lists: dict[int, GenerationList] = {}
        """This job's own."""
        self._shared_lists: dict[int, GenerationList] = {}

    def run(self) -> Restored:
        """Every rank gets the files of all. Of a name that several ranks have written, it gets its own file, else
        rank 0's, else the lowest rank's. A damaged generation gives way to the generation before it.

        Raises: TrainerError."""
        self.lists = patiently(lambda: all_lists(self._store), self._patience)
        if (shared := self._shared) is not None:
            self._shared_lists = patiently(lambda: all_lists(shared), self._patience)
        while cut := newest_cut(self._generations()):
            placed = merge(cut, self._rank)
            try:
                self._place(placed, cut)
            except _Damaged as damage:
                generation = cut[damage.rank]
                self._warn(f"checkpoint {generation.id} of learner {damage.rank + 1} can't be used: {damage}")
                self._damaged.add((damage.rank, generation.id, generation.shared))
                self._clear(placed)
                continue
            mixed = "" if of_one_moment(cut) else " (the newest of each learner, which may be of different moments)"
            return Restored(cut, placed, mixed)
        damaged = len(self._damaged)
        return Restored(trouble=f"begins anew: {damaged} checkpoint(s), none of which can be used" if damaged else "")

    def _generations(self) -> dict[int, list[Generation]]:
        """The generations of each rank that can be read, the newest first."""
        found: dict[int, list[Generation]] = {}
        own = ((rank, lists, False) for rank, lists in self.lists.items())
        shared = ((rank, lists, True) for rank, lists in self._shared_lists.items())
        for rank, lists, is_shared in (*own, *shared):
            for generation_id in reversed(lists.ids):
                if (rank, generation_id, is_shared) in self._damaged:
                    continue
                try:
                    generation = patiently(partial(lists.read, generation_id), self._patience)
                except Temporary:
                    raise
                except DataError as error:
                    self._warn(f"checkpoint {generation_id} can't be used: {error}")
                    self._damaged.add((rank, generation_id, is_shared))
                else:
                    found.setdefault(rank, []).append(generation._replace(shared=is_shared))
        return found

    def _place(self, placed: Mapping[str, tuple[int, Entry]], cut: Cut) -> None:
        def fetch(item: tuple[int, Entry]) -> None:
            rank, entry = item
            path = below(self._folder, entry.path)
            if _is_there(path, entry):  # from an earlier round of an elastic job
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
                return
            part = path.with_name(path.name + ".part")
            of_other = self._shared if cut[rank].shared else None
            store, lists = (self._store, self.lists) if of_other is None else (of_other, self._shared_lists)
            key = lists[rank].content(entry.sha256)
            try:
                patiently(lambda: store.fetch(key, part), self._patience)
            except Temporary:
                raise  # a store that is away is no reason to begin with something older
            except DataError as error:
                part.unlink(missing_ok=True)
                raise _Damaged(rank, str(error)) from error
            if sha256_of(part) != entry.sha256:
                part.unlink()
                raise _Damaged(rank, f"{entry.path} is damaged")
            os.utime(part, ns=(entry.mtime_ns, entry.mtime_ns))
            part.replace(path)

        for _, entry in placed.values():
            below(self._folder, entry.path).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_AT_ONCE, "restore") as pool:
            list(pool.map(fetch, [item for item in placed.values() if item[1].link is None]))
        for _, entry in placed.values():
            if entry.link is not None:
                path = below(self._folder, entry.path)
                path.unlink(missing_ok=True)
                path.symlink_to(entry.link)

    def _clear(self, placed: Mapping[str, tuple[int, Entry]]) -> None:
        for key in placed:
            below(self._folder, key).unlink(missing_ok=True)


def _is_there(path: Path, entry: Entry) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != entry.size:
        return False
    return sha256_of(path) == entry.sha256


class _Damaged(DataError):
    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


def newest_cut(generations: Mapping[int, list[Generation]]) -> dict[int, Generation]:
    """For each rank that has generations (the newest first), its state at the newest moment that is known for all
    ranks. If there is no such moment, the newest generation of each."""
    if len(generations) == 1:
        return {rank: row[0] for rank, row in generations.items()}
    for moment in sorted(
        {generation.until for row in generations.values() for generation in row if generation.until}, reverse=True
    ):
        chosen = dict(_at(generations, moment))
        if len(chosen) == len(generations):
            return chosen
    return {rank: row[0] for rank, row in generations.items()}


def of_one_moment(cut: Cut) -> bool:
    """Whether all ranks were in these states at the same time, as far as is known."""
    ends = [generation.until for generation in cut.values() if generation.until is not None]
    return len(cut) == 1 or (
        len(ends) == len(cut) and max(generation.since for generation in cut.values()) <= min(ends)
    )


def _at(generations: Mapping[int, list[Generation]], moment: float) -> Iterator[tuple[int, Generation]]:
    for rank, row in generations.items():
        for generation in row:
            if generation.until is not None and generation.since <= moment <= generation.until:
                yield rank, generation
                break


def merge(cut: Cut, rank: int) -> dict[str, tuple[int, Entry]]:
    """By path in one rank's folder, the rank that the file comes from, and its entry."""
    placed: dict[str, tuple[int, Entry]] = {}
    for other in (*sorted(cut.keys() - {rank}, reverse=True), *(cut.keys() & {rank})):
        placed |= {entry.path: (other, entry) for entry in cut[other].entries}
    return placed


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()
