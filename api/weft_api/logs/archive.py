"""Frames of archived logs, as readers ask for them: the last ones are kept, as a reader asks again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from weft_api.context import Shared
from weft_core.log_archive import ArchivedChunk, Damaged, read_frame
from weft_core.objects import Objects, StoreError

_KEPT_BYTES = 64 << 20
"""Bytes of lines that a process of the API keeps."""


@dataclass(frozen=True)
class FramePlace:
    """Where a frame is: ``size`` bytes of the object ``key`` from ``start`` on."""

    key: str
    start: int
    size: int


class LogArchive:
    """Thread-safe. Frames never change, so what is kept is true for as long as somebody may ask for it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._kept: OrderedDict[FramePlace, tuple[Sequence[ArchivedChunk], int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def records(self, place: FramePlace) -> Sequence[ArchivedChunk]:
        """The records of a frame.

        Raises:
            StoreError: S3 does not give it, or not as it was written.
        """
        with self._lock:
            if found := self._kept.get(place):
                self._kept.move_to_end(place)
                return found[0]
        try:
            records = read_frame(self._objects.get_range(place.key, place.start, place.size))
        except Damaged as error:
            raise StoreError(f"{place.key!r} is damaged at byte {place.start}: {error}", "other") from error
        size = sum(len(record.body) + len(record.times) + 200 for record in records)
        with self._lock:
            if place not in self._kept:
                self._kept[place] = (records, size)
                self._bytes += size
            while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone
        return records


ARCHIVE = Shared(lambda context: LogArchive(context.objects))
