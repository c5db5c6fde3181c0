"""Downloads of objects that are not on this node yet: small objects side by side, large objects in parallel ranges."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

from weft_trainer.errors import DataError
from weft_trainer.inputs.cache import Brought, CacheRequest, NodeCache
from weft_trainer.inputs.progress import Progress
from weft_trainer.spec import S3Location
from weft_trainer.stores.retry import patiently
from weft_trainer.stores.s3 import S3Store
from weft_trainer.stores.store import Stored

RANGE = 16 << 20
"""Bytes. Larger objects are brought in ranges of this size, side by side."""
_FILES_AT_ONCE = 16
_RANGES_AT_ONCE = 16


class Item(NamedTuple):
    location: S3Location
    stored: Stored
    request: CacheRequest
    cached: bool
    """Whether it may go into the cache; else there is no room for it there."""


class Tally:
    """The number of items by their origin."""

    def __init__(self) -> None:
        self.fetched = 0
        self.cached = 0  # another process of the node had brought them by then
        self.cached_bytes = 0


class Fetcher:
    """Thread-safe.

    Args:
        patience: seconds without any progress after which a store is given up.
    """

    def __init__(self, cache: NodeCache, patience: float) -> None:
        self._cache = cache
        self._patience = patience
        self._stores: dict[S3Location, S3Store] = {}
        # Ranges have a pool of their own: a file's worker may wait for another learner's lock on the same file, and
        # that learner's ranges must never wait behind such workers.
        self._files = ThreadPoolExecutor(_FILES_AT_ONCE, "file")
        self._ranges = ThreadPoolExecutor(_RANGES_AT_ONCE, "range")

    def store(self, location: S3Location) -> S3Store:
        found = self._stores.get(location)
        if found is None:
            found = self._stores.setdefault(location, S3Store(location))
        return found

    def run(self, items: Sequence[Item], progress: Progress) -> Tally:
        """Bring all items. Items that another process is downloading just now come last, when this process has nothing
        else to do. Raises: DataError, with the rest left off."""
        tally = Tally()
        busy = self._round(items, tally, progress, wait=False)
        self._round(busy, tally, progress, wait=True)
        return tally

    def _round(self, items: Sequence[Item], tally: Tally, progress: Progress, *, wait: bool) -> list[Item]:
        """Returns the items that another process was downloading."""
        busy: list[Item] = []
        left = deque(items)
        lock = threading.Lock()

        # A future for each thread, not for each item: a small object costs hardly more than a future.
        def work() -> None:
            while True:
                try:
                    item = left.popleft()
                except IndexError:
                    return
                brought = self._bring(item, wait, progress)
                with lock:
                    if brought is Brought.BUSY:
                        busy.append(item)
                    elif brought is Brought.CACHED:
                        tally.cached += 1
                        tally.cached_bytes += item.stored.size
                        progress.cached(1, item.stored.size)
                    else:
                        tally.fetched += 1
                        progress.brought()

        futures = [self._files.submit(work) for _ in range(min(_FILES_AT_ONCE, len(items)))]
        try:
            for future in as_completed(futures):
                future.result()
        finally:
            left.clear()
            for future in futures:
                future.cancel()
        return busy

    def _bring(self, item: Item, wait: bool, progress: Progress) -> Brought:
        store = self.store(item.location)

        def fetch(file: int) -> None:
            self._fetch(store, item.stored, file, progress)

        if item.cached:
            return self._cache.bring(item.request, fetch, wait=wait)
        self._cache.bypass(item.request, fetch)
        return Brought.FETCHED

    def _fetch(self, store: S3Store, stored: Stored, file: int, progress: Progress) -> None:
        def fetch(start: int) -> None:
            _fetch_range(store, stored, start, min(start + RANGE, stored.size), file, self._patience, progress)

        if stored.size <= RANGE:
            fetch(0)
            return
        futures = [self._ranges.submit(fetch, start) for start in range(0, stored.size, RANGE)]
        try:
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            for future in futures:  # the file is closed after this: nobody may write to it any more
                if not future.cancelled():
                    future.exception()


def _fetch_range(
    store: S3Store, stored: Stored, start: int, end: int, file: int, patience: float, progress: Progress
) -> None:
    at = start

    def take(piece: memoryview) -> None:
        nonlocal at
        if at + len(piece) > end:
            raise DataError(f"{stored.key}: the store sends more than it was asked for")
        progress.came(len(piece))
        while piece:
            written = os.pwrite(file, piece, at)
            at += written
            piece = piece[written:]

    def fetch() -> None:
        if at < end:  # bytes that came before a break need not come again
            store.fetch_range(stored, at, end, take)

    patiently(fetch, patience, progress=lambda: at)
