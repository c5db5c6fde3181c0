"""CHECKPOINT_DIR: brought back before the command starts, kept in S3 while it runs, on a stop, and at the end."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from weft_trainer.errors import DataError, Fenced, TrainerError
from weft_trainer.generations import Entry, Generation, GenerationList, generation_id, newest_usable
from weft_trainer.paths import below
from weft_trainer.patience import patiently
from weft_trainer.scan import Look, being_written, complete, look_at, scan
from weft_trainer.spec import LearnerSpec
from weft_trainer.stored import Store
from weft_trainer.upload import upload_files

_BETWEEN_LOOKS = 1.0
_SETTLE_LOOKS = 5
_HURRY_SECONDS = 2.0
_SUSPECT_SECONDS = 3.0
_AT_ONCE = 8
_TRUST_SECONDS = 15.0
"""Garbage is collected only by an agent that heard this recently that its attempt is the right one."""


class Checkpoints:
    """Rank 0's files are everybody's: each rank gets them back, and on top its own. A rank above 0 stores only what it
    has written itself."""

    def __init__(
        self,
        store: Callable[[], Store],
        spec: LearnerSpec,
        folder: Path,
        silence: Callable[[], float] = lambda: 0.0,
        fenced: Callable[[], bool] = lambda: False,
    ) -> None:
        self._open_store = store
        self._spec = spec
        self._folder = folder
        self._silence = silence
        self._fenced = fenced
        self._epoch = 0  # 0: not known yet
        self._number = 0
        self._last: Generation | None = None
        self._entries: dict[str, tuple[Look, Entry]] = {}  # what a file was when it was last hashed, or restored
        self._open_at_stop: set[str] = set()
        self._foreign: dict[str, Look] = {}  # rank 0's files, as another rank got them back
        self._lock = threading.Lock()
        self._every = spec.checkpoint.every_seconds
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    @cached_property
    def _store(self) -> Store:
        """Opened with the first file: most plain commands write no checkpoint."""
        return self._open_store()

    @cached_property
    def _own(self) -> GenerationList:
        return GenerationList(self._store, self._spec.rank)

    # --- restoring ---

    def restore(self, patience: float) -> int:
        """Bring the last complete checkpoint here; the number of files. Raises: TrainerError."""
        files = 0
        if self._spec.rank > 0:
            files += self._restore_list(GenerationList(self._store, 0), patience, foreign=True)
        files += self._restore_list(self._own, patience, foreign=False)
        self._epoch = self._own.next_epoch
        return files

    def _restore_list(self, lists: GenerationList, patience: float, foreign: bool) -> int:
        patiently(lists.load, patience)
        usable = newest_usable(lists, lambda one: self._take(lists, one, patience), _warn)
        if usable is None:
            return 0
        for entry in usable.entries:
            look = look_at(below(self._folder, entry.path))
            if look is None:
                continue
            if foreign:
                self._foreign[entry.path] = look
            else:
                self._foreign.pop(entry.path, None)
                self._entries[entry.path] = (look, entry)
        if not foreign:
            self._last = usable
        return len(usable.entries)

    def _take(self, lists: GenerationList, generation: Generation, patience: float) -> None:
        def fetch(entry: Entry) -> None:
            path = below(self._folder, entry.path)
            if (
                path.is_file()
                and not path.is_symlink()
                and path.stat().st_size == entry.size
                and _sha256(path) == entry.sha256
            ):
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
                return  # this learner wrote it itself, or has it from an earlier round
            part = path.with_name(path.name + ".part")
            patiently(lambda: self._store.fetch(lists.content(entry.sha256), part), patience)
            if _sha256(part) != entry.sha256:
                part.unlink()
                raise DataError(f"{entry.path} is damaged")
            os.utime(part, ns=(entry.mtime_ns, entry.mtime_ns))
            part.replace(path)

        for entry in generation.entries:
            below(self._folder, entry.path).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_AT_ONCE, "restore") as pool:
            list(pool.map(fetch, [entry for entry in generation.entries if entry.link is None]))
        for entry in generation.entries:
            if entry.link is not None:
                path = below(self._folder, entry.path)
                path.unlink(missing_ok=True)
                path.symlink_to(entry.link)

    def mirror(self, patience: float, round_number: int) -> int:
        """Make the folder what the last complete checkpoint is, for a round of an elastic job; the number of files.

        What a writer that was lost, or ended, has left behind is removed.

        Raises: TrainerError.
        """
        files = self._restore_list(self._own, patience, foreign=False)
        # Above that of an earlier round's leader, cut off from the others, who may not know yet that it is over.
        self._epoch = self._own.next_epoch + round_number
        for key in scan(self._folder):
            if key not in self._entries:
                (self._folder / key).unlink(missing_ok=True)
        return files

    # --- storing ---

    def start(self) -> None:
        """Store what is complete every ``every_seconds`` from now on."""
        self._thread.start()

    def hurry(self) -> None:
        """A stop has come: store at once what the program saves now, however long it takes to end. The engine may know
        a shorter grace than this agent, and kill both."""
        self._open_at_stop = being_written(self._folder)
        self._every = _HURRY_SECONDS
        self._wake.set()

    def finish(self, killed_at: float | None, patience: float, cut_off: bool = False) -> None:
        """Store what there is now that nobody writes any more.

        Some files may be half files, and of those the last stored state stays: if a writer was killed (``killed_at``),
        those of the moments before; if the stop itself ended one (``cut_off``), those that were open when it came.

        Raises:
            TrainerError, Fenced: it could not be stored.
        """
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        found = scan(self._folder)
        suspect = float("inf") if killed_at is None else (killed_at - _SUSPECT_SECONDS) * 1e9
        torn = self._open_at_stop if cut_off else set()
        usable = {
            key: look
            for key, look in found.items()
            if look.link is not None or (look.mtime_ns < suspect and key not in torn)
        }
        self._sync(found, usable, patience)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._every)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                found, usable = self._settle()
                self._sync(found, usable, patience=0)
            except Fenced:
                return
            except (TrainerError, OSError) as error:
                _warn(f"checkpoint not stored, the next try comes: {error}")

    def _settle(self) -> tuple[dict[str, Look], dict[str, Look]]:
        """All files, and those of them that are complete; waits a while for the others to become so."""
        before = scan(self._folder)
        for _ in range(_SETTLE_LOOKS):
            stopping = self._stop.wait(min(_BETWEEN_LOOKS, self._every))
            found = scan(self._folder)
            usable = complete(before, found, being_written(self._folder) if found else ())
            if len(usable) == len(found) or stopping:
                break
            before = found
        return found, usable

    def _sync(self, found: dict[str, Look], usable: dict[str, Look], patience: float) -> None:
        """Publish a generation of the folder's present state: of files that are not usable, the last stored one."""
        with self._lock:
            last = {entry.path: entry for entry in self._last.entries} if self._last else {}
            entries: dict[str, Entry] = {}
            fresh: dict[str, Look] = {}  # by key: to be sent
            for key, look in found.items():
                if self._foreign.get(key) == look:
                    continue
                known = self._entries.get(key)
                if known is not None and known[0] == look:
                    entries[key] = known[1]
                elif key in usable:
                    fresh[key] = look
                elif key in last:
                    entries[key] = last[key]
            if not fresh and set(entries) == set(last):
                return
            if not self._epoch:
                patiently(self._own.load, patience)
                self._epoch = self._own.next_epoch
            entries |= self._send(fresh, last, patience)
            self._publish(tuple(entries[key] for key in sorted(entries)), patience)

    def _send(self, fresh: dict[str, Look], last: dict[str, Entry], patience: float) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for key, look in fresh.items():
            digest = "" if look.link is not None else _sha256(self._folder / key)
            entries[key] = Entry(key, 0 if look.link else look.size, digest, look.mtime_ns, look.link)
        stored = self._last.contents if self._last else set()
        missing = {one.sha256: one for one in entries.values() if one.link is None and one.sha256 not in stored}
        files = [(self._own.content(digest), self._folder / one.path) for digest, one in missing.items()]
        upload_files(self._store, files, patience, self._fenced)
        # Written to meanwhile: what was sent may be a mixture, which must not stay under that content's name.
        changed = {key for key, look in fresh.items() if look_at(self._folder / key) != look}
        mixed = {entries[key].sha256 for key in changed}.intersection(missing)
        if mixed:
            self._store.delete([self._own.content(digest) for digest in mixed])
        for key, look in fresh.items():
            if key not in changed and entries[key].sha256 not in mixed:
                self._entries[key] = (look, entries[key])
            elif key in last:
                entries[key] = last[key]
            else:
                del entries[key]
        return entries

    def _publish(self, entries: tuple[Entry, ...], patience: float) -> None:
        if self._last is not None and entries == self._last.entries:
            return
        if self._fenced():
            raise Fenced
        self._number += 1
        generation = Generation(generation_id(self._epoch, self._number), entries)
        about = {"job": self._spec.job_id, "attempt": self._spec.attempt, "rank": self._spec.rank, "at": time.time()}
        patiently(lambda: self._own.publish(generation, about), patience)
        self._last = generation
        if self._silence() < _TRUST_SECONDS:
            try:
                self._own.collect(self._spec.checkpoint.keep, [generation])
            except DataError as error:
                _warn(f"old checkpoints are left: {error}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _warn(message: str) -> None:
    print(f"weft_trainer: {message}", file=sys.stderr, flush=True)
