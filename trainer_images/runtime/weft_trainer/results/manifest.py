"""RESULT_DIR goes to its place in S3, atomic as a whole for a reader: the manifest that lists all files is written
last.

``weft-manifest.json`` appears when every learner has stored its files, and is taken away before a later attempt writes
over them. Each learner leaves a list of its own files first. A learner that finds all lists puts them together, so no
learner has to wait. This relies on a promise of S3: a listing shows every object that was written before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from weft_trainer.errors import DataError, Fenced
from weft_trainer.spec import LearnerSpec
from weft_trainer.stores.retry import patiently
from weft_trainer.stores.store import Store
from weft_trainer.stores.upload import files_of, upload_files

MANIFEST = "weft-manifest.json"
_PARTS = "weft-manifest."
_FORMAT = 1
_HASHED_AT_ONCE = 2
_CHUNK = 1 << 20


class Results:
    """One learner's share of the results."""

    def __init__(
        self, store: Store, spec: LearnerSpec, patience: Callable[[], float], fenced: Callable[[], bool]
    ) -> None:
        self._store = store
        self._spec = spec
        self._patience = patience
        self._fenced = fenced

    def put(self, files: Sequence[tuple[str, Path]], *, complete: bool) -> None:
        """Store these files by their keys; ``complete``: this learner has ended well, so that there may be a manifest.
        Raises: DataError, Fenced."""
        if self._spec.attempt > 1:
            self._withdraw()
        upload_files(self._store, files, self._patience(), self._fenced)
        if complete:
            with ThreadPoolExecutor(_HASHED_AT_ONCE, "hash") as pool:
                self._publish(list(pool.map(lambda item: _entry(*item), files)))

    def _withdraw(self) -> None:
        """Remove the manifest of an earlier attempt, and the lists that it has left."""
        found = self._list(_PARTS)
        old = [key for key in found if key == MANIFEST or not key.startswith(self._prefix)]
        if MANIFEST in old and self._read(MANIFEST).get("attempt") == self._spec.attempt:
            old.remove(MANIFEST)
        if old:
            self._patiently(lambda: self._store.delete(old))

    def _publish(self, entries: list[dict[str, Any]]) -> None:
        count = self._spec.learners
        about = {
            "format": _FORMAT,
            "job": self._spec.job_id,
            "name": self._spec.job_name,
            "attempt": self._spec.attempt,
        }
        if count > 1:
            self._write(self._part(self._spec.rank), {**about, "learner": self._spec.learner_id, "files": entries})
            there = self._list(self._prefix)
            if not {self._part(rank) for rank in range(count)} <= set(there):
                return  # a learner that is not done yet will put them together
            # By path: if several learners have stored the same path, the lists may not say which learner was the last.
            merged: dict[str, dict[str, Any]] = {}
            for rank in range(count):
                part = self._read(self._part(rank))
                if not part:
                    return  # another learner has found all lists, too, has put them together and removed them
                for entry in part["files"]:
                    other = merged.get(entry["key"])
                    merged[entry["key"]] = entry if other in (None, entry) else self._as_stored(entry["key"])
            entries = [merged[key] for key in sorted(merged)]
        document = {
            **about,
            "learners": count,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "bytes": sum(entry["size"] for entry in entries),
            "files": entries,
        }
        self._write(MANIFEST, document)
        if count > 1:
            self._patiently(lambda: self._store.delete([self._part(rank) for rank in range(count)]))

    def _as_stored(self, key: str) -> dict[str, Any]:
        data = self._patiently(lambda: self._store.read(key)) or b""
        return {"key": key, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    @property
    def _prefix(self) -> str:
        return f"{_PARTS}{self._spec.attempt}."

    def _part(self, rank: int) -> str:
        return f"{self._prefix}learner-{rank + 1}.json"

    def _list(self, prefix: str) -> list[str]:
        return [stored.key for stored in self._patiently(lambda: self._store.list(prefix))]

    def _read(self, key: str) -> dict[str, Any]:
        data = self._patiently(lambda: self._store.read(key))
        try:
            document: dict[str, Any] = json.loads(data or b"{}")
        except ValueError as error:
            raise DataError(f"{key} can't be read: {error}") from None
        return document

    def _write(self, key: str, document: dict[str, Any]) -> None:
        if self._fenced():
            raise Fenced
        data = json.dumps(document, indent=1).encode()
        self._patiently(lambda: self._store.put_bytes(key, data))

    def _patiently(self, work: Callable[[], Any]) -> Any:
        return patiently(work, self._patience())


def results_of(folder: Path, inside: Path) -> list[tuple[str, Path]]:
    """The files of RESULT_DIR that are stored, by their paths there. See :func:`files_of`."""
    return [(key, path) for key, path in files_of(folder, inside) if not _reserved(key)]


def _reserved(key: str) -> bool:
    return key.startswith(_PARTS) and key.endswith(".json")


def _entry(key: str, path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
        return {"key": key, "size": file.tell(), "sha256": digest.hexdigest()}
