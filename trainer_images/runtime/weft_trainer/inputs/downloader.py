"""The download of code, data and the pretrained model, through the node's cache."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from weft_trainer.errors import DataError
from weft_trainer.folders import Folders
from weft_trainer.inputs.cache import CacheRequest, NodeCache
from weft_trainer.inputs.code import extract, fetch_bundle
from weft_trainer.inputs.fetcher import RANGE, Fetcher, Item
from weft_trainer.inputs.progress import Progress
from weft_trainer.inputs.selection import fitting, select, share
from weft_trainer.inputs.streams import write_stream
from weft_trainer.program.hub import is_blob
from weft_trainer.spec import BundleInput, DataInput, LearnerSpec, S3Location
from weft_trainer.stores.paths import path_below
from weft_trainer.stores.retry import PATIENCE, patiently
from weft_trainer.stores.store import Stored
from weft_trainer.stores.summary import summary
from weft_trainer.words import count, size

_CODE = "the code bundle"
_MOST_PROCESSES = 4
_MANY = 1024
"""The number of small objects from which on more processes are worth their start."""


class Report:
    """The files that were brought, and their bytes."""

    def __init__(self) -> None:
        self.files = 0
        self.size = 0
        self.cached = 0
        self.streamed = 0

    def words(self, seconds: float) -> str:
        """For the job's events."""
        parts = []
        if self.files:
            cached = f", {self.cached} of them from the node's cache" if self.cached else ""
            parts.append(f"{count(self.files, 'file')} ({size(self.size)}) in {seconds:.1f} s{cached}")
        if self.streamed:
            parts.append(f"{count(self.streamed, 'file')} to stream")
        return "; ".join(parts)


class ListedObjects(NamedTuple):
    """The objects that were listed at a location, and the folder that they go to."""

    location: S3Location
    folder: Path
    objects: Sequence[Stored]


class Downloader:
    """
    Args:
        warn: gets warnings for an operator.
        patience: seconds without any progress after which a store is given up.
        say: gets lines for the user about a download that takes long.
    """

    def __init__(
        self,
        cache: NodeCache,
        warn: Callable[[str], None],
        patience: float = PATIENCE,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cache = cache
        self._warn = warn
        self._say = say
        self._patience = patience
        self._report = Report()
        self.inputs: dict[str, dict[str, Any]] = {}
        """Summaries of the inputs, for the lineage of models (:mod:`weft_trainer.stores.summary`). Of data in shares,
        the summary is of the whole."""
        self._readable: set[S3Location] = set()
        """Locations whose objects these credentials may read."""
        self._fetcher = Fetcher(cache, patience)

    def run(self, spec: LearnerSpec, folders: Folders) -> str:
        """Bring all inputs. Returns a description of them. Raises: DataError."""
        started = time.monotonic()
        if spec.code is not None:
            with _coded("C102"):
                self._code(spec.code, folders.model, folders.submitted if spec.rank == 0 else None)
        if spec.data:
            progress = Progress("data", self._say)
            with _coded("S302"), progress.spoken_of():
                self._data(spec, folders, progress)
        if spec.pretrained is not None:
            progress = Progress("pretrained model", self._say)
            with _coded("S301"), progress.spoken_of():
                self._pretrained(spec.pretrained, folders.pretrained, spec.cpus, progress)
        return self._report.words(time.monotonic() - started)

    def _code(self, code: BundleInput, folder: Path, keep: Path | None) -> None:
        bundle = folder.with_name("code.zip")
        try:
            self._cache.bring(
                CacheRequest.of(("code", code.sha256), code.size, None, bundle),
                lambda file: fetch_bundle(code, file, _CODE),
            )
            extract(bundle, folder, _CODE)
            if keep is not None:
                os.replace(bundle, keep)
        finally:
            bundle.unlink(missing_ok=True)

    def _data(self, spec: LearnerSpec, folders: Folders, progress: Progress) -> None:
        """All data stores side by side."""
        # A single data store's cached objects come while the next page is under way. A second job is faster for that.
        early = len(spec.data) == 1 and spec.data[0].mode != "stream" and spec.data[0].shard == "none"
        missing: list[Item] | None = None

        def listed(source: DataInput) -> tuple[S3Location, list[Stored]]:
            def came(page: Sequence[Stored]) -> None:
                nonlocal missing
                if early and page:
                    listing = ListedObjects(source.location, folders.data, fitting(page, source))
                    missing = [] if missing is None else missing
                    with contextlib.suppress(NotADirectoryError, IsADirectoryError, FileExistsError):  # _check_tree's
                        missing += self._from_cache(listing, progress)

            location, found = self._listed(f"data store '{source.id}'", source.location, progress, came)
            return location, select(found, source)

        with ThreadPoolExecutor(max(1, len(spec.data)), "list") as pool:
            found = list(pool.map(listed, spec.data))
        wholes = [objects for _, objects in found]
        listings = [
            (source, ListedObjects(location, folders.data, share(objects, source, spec.rank, spec.learners)))
            for source, (location, objects) in zip(spec.data, found)
        ]
        owners: dict[str, str] = {}
        for source, listing in listings:
            if source.mode == "stream":
                write_stream(folders.streams, source.id, self._fetcher.store(listing.location), listing.objects)
                self._report.streamed += len(listing.objects)
                continue
            for stored in listing.objects:
                other = owners.setdefault(stored.key, source.id)
                if other != source.id:
                    raise DataError(f"data stores '{other}' and '{source.id}' both have '{stored.key}' for DATA_DIR")
        _check_tree(owners)
        self.inputs["data"] = summary((stored for objects in wholes for stored in objects), etags=True)
        self._bring([listing for source, listing in listings if source.mode != "stream"], spec.cpus, progress, missing)

    def _pretrained(self, location: S3Location, folder: Path, cpus: float, progress: Progress) -> None:
        there, found = self._listed("the pretrained model", location, progress)
        files = [stored for stored in found if stored.key and not stored.key.endswith("/") and not is_blob(stored.key)]
        if not files:
            raise DataError(f"there is no pretrained model at {location.words}")
        self.inputs["pretrained"] = summary(files, etags=True)
        self._bring([ListedObjects(there, folder, files)], cpus, progress)

    def _listed(
        self,
        name: str,
        location: S3Location,
        progress: Progress,
        came: Callable[[Sequence[Stored]], None] = lambda _: None,
    ) -> tuple[S3Location, list[Stored]]:
        """The objects at a location: those below its prefix, page by page, or the object that it points at."""
        try:
            store = self._fetcher.store(location)
            found: list[Stored] = []
            for page in store.pages(ask=lambda request: patiently(request, self._patience, beginning=True)):
                found += page
                progress.listed(len(page))
                came(page)
            if not found and location.prefix:
                folder, _, key = location.prefix.rpartition("/")
                parent = location._replace(prefix=folder)
                single = patiently(lambda: self._fetcher.store(parent).head(key), self._patience)
                if single is not None:
                    return parent, [single]
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
        if not found:
            self._warn(f"{name}: there is nothing at {location.words}")
        return location, found

    def _bring(
        self, listings: Sequence[ListedObjects], cpus: float, progress: Progress, missing: list[Item] | None = None
    ) -> None:
        """``missing``: the items that the cache does not have, if it has been asked already."""
        for listing in listings:
            total = sum(stored.size for stored in listing.objects)
            progress.expect(len(listing.objects), total)
            self._report.files += len(listing.objects)
            self._report.size += total
        if missing is None:
            missing = [item for listing in listings for item in self._from_cache(listing, progress)]
        if not missing:
            return
        with self._cache.room([item.request for item in missing]) as chosen:
            items = [item._replace(cached=item.request.identity in chosen) for item in missing]
            if not all(item.cached for item in items):
                self._warn(f"the node's cache ({size(self._cache.limit)}) has no room for all of it")
            self._fetch(items, cpus, progress)

    def _from_cache(self, listing: ListedObjects, progress: Progress) -> list[Item]:
        """Put the objects that the cache has into the folder. Returns the other items. By now these credentials have
        listed the objects; whether they may read them, too, is asked for once."""
        items = [_item(listing, stored) for stored in listing.objects]
        for folder in {os.path.dirname(item.request.target) for item in items}:
            os.makedirs(folder, exist_ok=True)
        missing = []
        for item in items:
            if listing.location not in self._readable and self._cache.has(item.request):
                self._check_readable(item)
                self._readable.add(listing.location)
            if listing.location in self._readable and self._cache.give(item.request):
                self._report.cached += 1
                progress.cached(1, item.stored.size)
            else:
                missing.append(item)
        return missing

    def _check_readable(self, item: Item) -> None:
        there = patiently(lambda: self._fetcher.store(item.location).head(item.stored.key), self._patience)
        if there is None or there.etag != item.stored.etag:
            raise DataError(f"{item.location.words}: '{item.stored.key}' was replaced while it was being downloaded")

    def _fetch(self, items: Sequence[Item], cpus: float, progress: Progress) -> None:
        """Large items first: they take longest."""
        large = sorted((item for item in items if item.stored.size > RANGE), key=lambda item: -item.stored.size)
        small = [item for item in items if item.stored.size <= RANGE]
        tally = self._fetcher.run(large, progress)
        self._report.cached += tally.cached
        helpers = min(_MOST_PROCESSES, int(cpus), os.cpu_count() or 1) - 1 if len(small) >= _MANY else 0
        if helpers > 0:
            from weft_trainer.inputs.fetch_worker import fetch_by_processes  # most learners bring a few files

            tally = fetch_by_processes(self._cache, self._patience, small, helpers, self._fetcher, progress)
        else:
            tally = self._fetcher.run(small, progress)
        self._report.cached += tally.cached


def _item(listing: ListedObjects, stored: Stored) -> Item:
    location = listing.location
    whole = f"{location.prefix}/{stored.key}" if location.prefix else stored.key
    identity = (location.endpoint, location.bucket, whole, stored.etag, str(stored.size))
    request = CacheRequest.of(identity, stored.size, stored.modified, path_below(listing.folder, stored.key))
    return Item(location, stored, request, cached=True)


@contextlib.contextmanager
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
