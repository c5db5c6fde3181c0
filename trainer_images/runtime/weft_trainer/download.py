"""Brings code, data and the pretrained model here, all at once, through the node's cache."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft_trainer.bundle import extract
from weft_trainer.cache import NodeCache
from weft_trainer.errors import DataError
from weft_trainer.folders import Folders
from weft_trainer.http import Http, Unreachable
from weft_trainer.listing import summary
from weft_trainer.paths import below
from weft_trainer.patience import Temporary, patiently
from weft_trainer.spec import CodeInput, DataInput, LearnerSpec, S3Location
from weft_trainer.stored import Stored

PATIENCE = 60.0
"""Seconds that a store may be away before the learner gives up."""
_FILES_AT_ONCE = 8
_PARTS_AT_ONCE = 8


@dataclass
class Report:
    files: int = 0
    size: int = 0
    cached: int = 0

    def words(self, seconds: float) -> str:
        """For the job's events."""
        if not self.files:
            return ""
        cached = f", {self.cached} of them from the node's cache" if self.cached else ""
        return f"{count(self.files)} ({self.size / 1e6:,.1f} MB) in {seconds:.1f} s{cached}"


def count(files: int) -> str:
    return f"{files:,} file{'' if files == 1 else 's'}"


class Downloader:
    def __init__(self, cache: NodeCache, warn: Callable[[str], None]) -> None:
        self._cache = cache
        self._warn = warn
        self._report = Report()
        self.inputs: dict[str, dict[str, Any]] = {}
        """What was found where the inputs are, for the lineage of models: :func:`weft_trainer.listing.summary`."""
        self._lock = threading.Lock()
        # Parts have a pool of their own: a file's worker may wait for another learner's lock on the same file, and
        # that learner's parts must never wait behind such workers.
        self._files = ThreadPoolExecutor(_FILES_AT_ONCE, "file")
        self._parts = ThreadPoolExecutor(_PARTS_AT_ONCE, "part")

    def run(self, spec: LearnerSpec, folders: Folders) -> str:
        """Raises: DataError. Returns what was brought, in words."""
        started = time.monotonic()
        if spec.code is not None:
            with _coded("C102"):
                self._code(spec.code, folders.model)
        if spec.data:
            with _coded("S302"):
                self._data(spec.data, folders.data)
        if spec.pretrained is not None:
            with _coded("S301"):
                self._pretrained(spec.pretrained, folders.pretrained)
        return self._report.words(time.monotonic() - started)

    def _code(self, code: CodeInput, folder: Path) -> None:
        bundle = folder.with_name("code.zip")
        try:
            self._cache.provide(("code", code.sha256), code.size, None, lambda path: _fetch_code(code, path), bundle)
            extract(bundle, folder)
        finally:
            bundle.unlink(missing_ok=True)

    def _data(self, inputs: Sequence[DataInput], folder: Path) -> None:
        """All data stores side by side."""
        owners: dict[str, str] = {}
        work: list[tuple[S3Location, Stored, Path]] = []
        for one in inputs:
            if one.mode != "download":
                self._warn(f"data store '{one.id}': mode {one.mode} is not known here: downloaded instead")
            for location, stored in self._listed(f"data store '{one.id}'", one.location):
                other = owners.setdefault(stored.key, one.id)
                if other != one.id:
                    raise DataError(f"data stores '{other}' and '{one.id}' both have '{stored.key}' for DATA_DIR")
                work.append((location, stored, folder))
        _check_tree(owners)
        self.inputs["data"] = summary((stored for _, stored, _ in work), etags=True)
        self._fetch_all(work)

    def _pretrained(self, place: S3Location, folder: Path) -> None:
        files = self._listed("the pretrained model", place)
        if not files:
            raise DataError(f"there is no pretrained model at {place.words}")
        self.inputs["pretrained"] = summary((one for _, one in files), etags=True)
        self._fetch_all([(location, one, folder) for location, one in files])

    def _listed(self, name: str, location: S3Location) -> list[tuple[S3Location, Stored]]:
        """What is at a location: the objects below its prefix, or the one that it points at."""
        from weft_trainer.s3 import S3Store  # boto3 takes 0.3 s

        try:
            found = patiently(S3Store(location).list, PATIENCE)
            if not found and location.prefix:
                folder, _, key = location.prefix.rpartition("/")
                parent = replace(location, prefix=folder)
                single = patiently(lambda: S3Store(parent).head(key), PATIENCE)
                if single is not None:
                    return [(parent, single)]
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
        if not found:
            self._warn(f"{name}: there is nothing at {location.words}")
        # Some tools mark an empty folder by an object 'folder/'.
        return [(location, one) for one in found if one.key and not one.key.endswith("/")]

    def _fetch_all(self, work: Sequence[tuple[S3Location, Stored, Path]]) -> None:
        from weft_trainer.s3 import S3Store

        stores = {location: S3Store(location) for location, _, _ in work}

        def fetch(item: tuple[S3Location, Stored, Path]) -> None:
            location, one, folder = item
            whole = f"{location.prefix}/{one.key}" if location.prefix else one.key
            identity = (location.endpoint, location.container, whole, one.etag, str(one.size))
            cached = self._cache.provide(
                identity,
                one.size,
                one.modified,
                lambda path: stores[location].fetch_parts(one, path, self._parts, PATIENCE),
                below(folder, one.key),
            )
            with self._lock:
                self._report.files += 1
                self._report.size += one.size
                self._report.cached += cached

        futures = [self._files.submit(fetch, item) for item in work]
        try:
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def _coded(error_code: str) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        error.error_code = error_code
        raise


def _check_tree(keys: dict[str, str]) -> None:
    """S3 may hold both 'a' and 'a/b'; a file system can't."""
    for key in keys:
        for end in (index for index, letter in enumerate(key) if letter == "/"):
            if key[:end] in keys:
                raise DataError(f"'{key[:end]}' in S3 is both an object and a folder: a file system can't hold that")


def _fetch_code(code: CodeInput, path: Path) -> None:
    http = Http()

    def fetch() -> None:
        try:
            with path.open("wb") as file:
                answer = http.request("GET", code.url, sink=file)
        except Unreachable as error:
            raise Temporary(f"the code bundle can't be downloaded: {error}") from error
        if answer.status >= 300:
            kind = Temporary if answer.status >= 500 else DataError
            raise kind(f"the code bundle can't be downloaded: the store answers {answer.status}")

    patiently(fetch, PATIENCE)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != code.sha256:
        raise DataError(f"the code bundle is not what was submitted: sha256 {found}, expected {code.sha256}")
