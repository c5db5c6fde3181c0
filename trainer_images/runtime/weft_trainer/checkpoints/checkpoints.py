"""CHECKPOINT_DIR: brought back before the command starts, kept in S3 while it runs, on a stop, and at the end."""

from __future__ import annotations

import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from weft_trainer.checkpoints.consistency import Settler, State, group_of, torn_by_kill, unfinished
from weft_trainer.checkpoints.generations import Entry, Generation, GenerationList, generation_id
from weft_trainer.checkpoints.restoring import Restored, Restoring, sha256_of
from weft_trainer.checkpoints.scan import FileStamp, being_written, is_temporary, saving, scan, stamp_of
from weft_trainer.errors import DataError, Fenced, TrainerError, warn
from weft_trainer.spec import LearnerSpec
from weft_trainer.stores.paths import below
from weft_trainer.stores.retry import patiently
from weft_trainer.stores.store import Store
from weft_trainer.stores.upload import upload_files

_BETWEEN_SCANS = 1.0
_AGAIN_SECONDS = 5.0
"""Seconds until the next try if the folder did not come to rest."""
_HURRY_SECONDS = 2.0
_TRUST_SECONDS = 15.0
"""An agent collects garbage only if it heard from the service within this time that its attempt goes on."""


class Checkpoints:
    """Every rank gets the files of all back (see :mod:`.restoring`) and stores the files that it has written itself.

    Args:
        store: opens the store, with the first file: most plain commands write no checkpoint.
        spec: of this learner.
        folder: CHECKPOINT_DIR.
        pins: an empty folder of the agent's on the same file system, where files stay as they are until they are sent.
        silence: seconds since the service last confirmed this attempt.
        fenced: whether this attempt is over.
        shared: opens the store of the other job whose checkpoint this job begins with. Nothing is written there; the
            first generation of this job's own has all files.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        spec: LearnerSpec,
        folder: Path,
        pins: Path,
        silence: Callable[[], float] = lambda: 0.0,
        fenced: Callable[[], bool] = lambda: False,
        shared: Callable[[], Store] | None = None,
    ) -> None:
        self._open_shared = shared
        self._open_store = store
        self._spec = spec
        self._folder = folder
        self._pins = pins
        self._silence = silence
        self._fenced = fenced
        self._epoch = 0  # 0: not known yet
        self._number = 0
        self._last: Generation | None = None
        self._abandoned: set[str] = set()  # newer than the generation that the gang agreed to begin with
        self._entries: dict[str, tuple[FileStamp, Entry]] = {}  # a file's state when last hashed or restored
        self._open_at_stop: set[str] = set()
        self._foreign: dict[str, FileStamp] = {}  # other ranks' files, as they came back
        self._borrowed: dict[str, FileStamp] = {}  # files of the other job's learner of this rank, as they came here
        self._lock = threading.Lock()
        self._every = spec.checkpoint.every_seconds
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._settler = Settler(folder, self._stop.wait)
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    @cached_property
    def _store(self) -> Store:
        return self._open_store()

    @cached_property
    def _own(self) -> GenerationList:
        return GenerationList(self._store, self._spec.rank)

    # --- restoring ---

    def restore(self, patience: float) -> Restored:
        """Bring the last complete checkpoint here. Raises: TrainerError."""
        shared = self._open_shared() if self._open_shared else None
        restoring = Restoring(self._store, self._spec.rank, self._folder, patience, warn, shared)
        restored = restoring.run()
        self._own = restoring.lists.get(self._spec.rank, self._own)
        self._epoch = self._own.next_epoch
        self._last = restored.cut.get(self._spec.rank)
        if self._last:
            self._abandoned = {newer for newer in self._own.ids if self._last.shared or newer > self._last.id}
        self._borrowed = {}
        for rank, entry in restored.placed.values():
            stamp = stamp_of(below(self._folder, entry.path))
            if stamp is not None and restored.cut[rank].shared and self._inherits(rank):
                self._borrowed[entry.path] = stamp
            elif stamp is not None and rank == self._spec.rank:
                self._entries[entry.path] = (stamp, entry)
            elif stamp is not None:
                self._foreign[entry.path] = stamp
        return restored

    def _inherits(self, rank: int) -> bool:
        """Whether this learner stores what a learner of the other job has stored: the one of its own rank; learner 1
        also what the learners have stored that this job lacks."""
        return rank == self._spec.rank or (self._spec.rank == 0 and rank >= self._spec.learners)

    @property
    def untouched(self) -> bool:
        """Whether the folder holds nothing but the files that came back."""
        if self._number:
            return False
        known = {key: stamp for key, (stamp, _) in dict(self._entries).items()} | self._foreign | self._borrowed
        return all(known.get(key) == stamp for key, stamp in scan(self._folder).items())

    @property
    def saved_at(self) -> float | None:
        """When the program wrote the newest file of the last stored generation (seconds since the epoch); None: it has
        stored none."""
        last = self._last
        return last.since if last is not None and self._number else None

    def mirror(self, patience: float, round_number: int) -> int:
        """Make the folder equal to the last complete checkpoint, for a round of an elastic job; the number of files.

        Files that a lost or ended writer has left behind are removed.

        Raises: TrainerError.
        """
        restored = self.restore(patience)
        # Above the epoch of an earlier round's leader, which may be cut off and not know yet that the round is over.
        self._epoch = self._own.next_epoch + round_number
        for key in scan(self._folder):
            if key not in restored.placed:
                (self._folder / key).unlink(missing_ok=True)
        return restored.files

    # --- storing ---

    def start(self) -> None:
        """Store the complete files every ``every_seconds`` from now on."""
        self._thread.start()

    def hurry(self) -> None:
        """A stop has come: store at once the files that the program saves now, however long it takes to end. The engine
        may know a shorter grace than this agent, and kill both."""
        self._open_at_stop = being_written(self._folder)
        self._every = _HURRY_SECONDS
        self._wake.set()

    def finish(self, killed_at: float | None, patience: float, cut_off: bool = False) -> None:
        """Store the folder, now that no process writes any more.

        Some files may be half written. Then the last stored state of them, and of the files that belong to them, stays.
        If a writer was killed (``killed_at``), these are the files written just before; if the stop itself ended a
        writer (``cut_off``), the files that were open when it came.

        Raises:
            TrainerError, Fenced: it could not be stored.
        """
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        found = scan(self._folder)
        torn: frozenset[str] = frozenset()
        if cut_off:
            drafts = {group_of(key) for key in self._open_at_stop if is_temporary(key)}
            torn |= self._open_at_stop | unfinished(found, drafts, self._last_entries)
            torn = frozenset(key for key in torn if not is_temporary(key))
        if killed_at is not None:
            torn |= torn_by_kill(self._folder, killed_at, self._last_entries)
        self._sync(State(found, torn, saving=frozenset(saving(self._folder))), patience)

    def _run(self) -> None:
        at_rest = True
        while True:
            self._wake.wait(self._until_next() if at_rest else min(self._every, _AGAIN_SECONDS))
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                state = self._settler.settle(min(_BETWEEN_SCANS, self._every), self._last_entries)
                at_rest = state.at_rest
                if self._borrows and self.untouched:
                    continue  # it is stored already, by the other job
                self._sync(state, patience=0)
            except Fenced:
                return
            except (TrainerError, OSError) as error:
                warn(f"checkpoint not stored, the next try comes: {error}")

    def _until_next(self) -> float:
        """Seconds. All learners of a job scan at about the same time, different jobs at different ones, so that their
        generations are of the same moments."""
        if self._spec.learners == 1:
            return self._every
        offset = zlib.crc32(self._spec.job_id.encode()) / 2**32 * self._every
        return self._every - (time.time() - offset) % self._every

    @property
    def _borrows(self) -> bool:
        """Whether the newest state of the folder is stored by the other job only."""
        return self._last is not None and self._last.shared

    @property
    def _last_entries(self) -> Mapping[str, Entry]:
        return {entry.path: entry for entry in self._last.entries} if self._last else {}

    def _sync(self, state: State, patience: float) -> None:
        """Publish a generation of a state of the folder."""
        with self._lock:
            seen = time.time()
            while True:
                now, entries = state.select(self._last_entries)
                if entries and self._borrows:
                    return  # the files of a torn group are in the other job's store only
                fresh: dict[str, FileStamp] = {}  # by key: to be sent
                for key, stamp in now.items():
                    known = self._entries.get(key)
                    if self._foreign.get(key) == stamp:
                        continue
                    if known is not None and known[0] == stamp:
                        entries[key] = known[1]
                    else:
                        fresh[key] = stamp
                if not fresh and entries == self._last_entries:
                    self._confirm(seen, state, patience)
                    return
                if not self._epoch:
                    patiently(self._own.load, patience)
                    self._epoch = self._own.next_epoch
                sent, torn = self._send(fresh, patience)
                if not torn:
                    break
                # Files were written to meanwhile: their groups must not be stored without them.
                state = State(state.found, state.torn | torn, state.logs, state.saving)
            entries |= sent
            self._publish(tuple(entries[key] for key in sorted(entries)), seen, patience)

    def _send(self, fresh: Mapping[str, FileStamp], patience: float) -> tuple[dict[str, Entry], frozenset[str]]:
        """Entries of the files that were sent; or files that have changed meanwhile, and then nothing has been kept."""
        pins = self._pin(fresh)
        try:
            entries: dict[str, Entry] = {}
            for key, stamp in fresh.items():
                digest = "" if stamp.link is not None else sha256_of(pins[key])
                entries[key] = Entry(key, 0 if stamp.link else stamp.size, digest, stamp.mtime_ns, stamp.link)
            # Stored by content: nothing may be written to the files between their hash and their upload.
            torn = _changed(fresh, pins)
            if torn:
                return {}, torn
            stored = self._own.contents() if self._last or self._own.ids else set()
            missing = {
                entry.sha256: pins[entry.path]
                for entry in entries.values()
                if entry.link is None and entry.sha256 not in stored
            }
            files = [(self._own.content(digest), path) for digest, path in missing.items()]
            upload_files(self._store, files, patience, self._fenced)
            torn = _changed(fresh, pins)
            if torn:
                self._store.delete([self._own.content(digest) for digest in missing])
                return {}, torn
        except FileNotFoundError:  # a file could not be pinned, and is gone
            return {}, _changed(fresh, pins)
        finally:
            shutil.rmtree(self._pins, ignore_errors=True)
        self._entries |= {key: (stamp, entries[key]) for key, stamp in fresh.items()}
        return entries, frozenset()

    def _pin(self, fresh: Mapping[str, FileStamp]) -> dict[str, Path]:
        """Hard links to files, which stay when other files are put in their place. Where the file system
        has no links, the files themselves."""
        shutil.rmtree(self._pins, ignore_errors=True)
        self._pins.mkdir(parents=True)
        pins = {}
        for number, (key, stamp) in enumerate(fresh.items()):
            pins[key] = path = self._folder / key
            if stamp.link is None:
                pin = self._pins / str(number)
                try:
                    os.link(path, pin, follow_symlinks=False)
                except OSError:
                    continue
                pins[key] = pin
        return pins

    def _publish(self, entries: tuple[Entry, ...], seen: float, patience: float) -> None:
        if self._fenced():
            raise Fenced
        self._number += 1
        about = {"job": self._spec.job_id, "attempt": self._spec.attempt, "rank": self._spec.rank, "at": time.time()}
        generation = Generation(generation_id(self._epoch, self._number), entries, seen, about)
        patiently(lambda: self._own.publish(generation), patience)
        self._last = generation
        if self._silence() < _TRUST_SECONDS:
            # The newest generations of several learners may not be of the same moment.
            keep = max(self._spec.checkpoint.keep, 1 if self._spec.learners == 1 else 2)
            try:
                self._own.collect(keep, self._abandoned)
                if self._number == 1:
                    self._own.sweep()
            except DataError as error:
                warn(f"old checkpoints are left: {error}")

    def _confirm(self, seen: float, state: State, patience: float) -> None:
        """Note that the folder is still in the state of the last generation, so that other learners know which of their
        generations goes with it."""
        last = self._last
        if last is None or last.shared or self._spec.learners == 1 or not state.at_rest or self._fenced():
            return
        self._last = Generation(last.id, last.entries, seen, last.about)
        patiently(lambda: self._own.publish(self._last or last), patience)


def _changed(fresh: Mapping[str, FileStamp], pins: Mapping[str, Path]) -> frozenset[str]:
    """The keys of files that have changed."""
    return frozenset(key for key, stamp in fresh.items() if stamp_of(pins[key]) != stamp)
