"""Brings objects that are not on this node yet: many small ones side by side, large ones in parallel ranges."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from weft_trainer.cache import Brought, NodeCache, Wanted
from weft_trainer.errors import DataError
from weft_trainer.patience import patiently
from weft_trainer.s3 import S3Store
from weft_trainer.spec import S3Location
from weft_trainer.stored import Stored

RANGE = 16 << 20
"""Bytes; what is larger is brought in ranges of this size, side by side."""
_FILES_AT_ONCE = 16
_RANGES_AT_ONCE = 16


@dataclass(frozen=True)
class Item:
    location: S3Location
    stored: Stored
    wanted: Wanted
    cached: bool
    """Whether it may go into the cache; else there is no room for it there."""


@dataclass
class Tally:
    """What became of items."""

    fetched: int = 0
    cached: int = 0
    """Another process of the node had brought them by then."""


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

    def run(self, items: Sequence[Item]) -> Tally:
        """Bring all of them; what another process is downloading just now is waited for at the end, when this one has
        nothing else to do. Raises: DataError, with the rest left off."""
        tally = Tally()
        busy = self._round(items, tally, wait=False)
        self._round(busy, tally, wait=True)
        return tally

    def _round(self, items: Sequence[Item], tally: Tally, *, wait: bool) -> list[Item]:
        busy = []
        futures = [(item, self._files.submit(self._bring, item, wait)) for item in items]
        try:
            for item, future in futures:
                brought = future.result()
                if brought is Brought.BUSY:
                    busy.append(item)
                tally.cached += brought is Brought.CACHED
                tally.fetched += brought is Brought.FETCHED
        finally:
            for _, future in futures:
                future.cancel()
        return busy

    def _bring(self, item: Item, wait: bool) -> Brought:
        store = self.store(item.location)

        def fetch(file: int) -> None:
            self._fetch(store, item.stored, file)

        if item.cached:
            return self._cache.bring(item.wanted, fetch, wait=wait)
        self._cache.bypass(item.wanted, fetch)
        return Brought.FETCHED

    def _fetch(self, store: S3Store, one: Stored, file: int) -> None:
        starts = range(0, one.size, RANGE)
        if len(starts) <= 1:
            _fetch_range(store, one, 0, one.size, file, self._patience)
            return
        futures = [
            self._ranges.submit(_fetch_range, store, one, start, min(start + RANGE, one.size), file, self._patience)
            for start in starts
        ]
        try:
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            for future in futures:  # the file is closed after this: nobody may write to it any more
                if not future.cancelled():
                    future.exception()


def _fetch_range(store: S3Store, one: Stored, start: int, end: int, file: int, patience: float) -> None:
    at = start

    def take(piece: memoryview) -> None:
        nonlocal at
        if at + len(piece) > end:
            raise DataError(f"{one.key}: the store sends more than it was asked for")
        while piece:
            written = os.pwrite(file, piece, at)
            at += written
            piece = piece[written:]

    def fetch() -> None:
        if at < end:  # what came before a break need not come again
            store.fetch_range(one, at, end, take)

    patiently(fetch, patience, progress=lambda: at)


Bring = Callable[[Sequence[Item]], Tally]
