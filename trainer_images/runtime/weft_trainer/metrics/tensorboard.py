"""The scalars of all TensorBoard event files that a program writes below the watched folders."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft_trainer.metrics.events import Broken, Event, EventFile
from weft_trainer.metrics.growing import Found, open_regular
from weft_trainer.metrics.records import Record
from weft_trainer.metrics.shipper import MetricShipper

_MARK = "tfevents"
_EVENTS = 10_000
"""At most so many in one read: some 0.2 s of one core."""


@dataclass
class _Followed:
    reader: EventFile = field(default_factory=EventFile)
    seen: tuple[int, int] = (-1, -1)
    """Its size and time of change when it was read to its end."""
    broken: bool = False


class EventFiles:
    """Follows every event file, also when it is renamed.

    Args:
        say: writes a line into the job's log.
    """

    def __init__(self, shipper: MetricShipper, say: Callable[[str], None]) -> None:
        self._shipper = shipper
        self._say = say
        self._files: dict[tuple[int, int], _Followed] = {}

    def read(self, found: Sequence[Found]) -> bool:
        files = {}
        left = _EVENTS
        event_files = (file for file in found if _MARK in file.path.name)
        for file in sorted(event_files, key=lambda file: file.path):
            identity = (file.status.st_dev, file.status.st_ino)
            followed = files[identity] = self._files.get(identity) or _Followed()
            left -= self._read(file, followed, left)
        self._files = files  # the others are gone, and other files may get their inode numbers
        return left <= 0

    def _read(self, found: Found, followed: _Followed, most: int) -> int:
        state = (found.status.st_size, found.status.st_mtime_ns)
        if followed.broken or followed.seen == state or most <= 0:
            return 0
        try:
            with open_regular(found.path) as file:
                events = followed.reader.read(file, most)
        except OSError:
            return 0  # removed or renamed meanwhile: the next read shows
        except Broken:
            followed.broken = True
            self._say(f"weft: metrics: {found.path.name} is damaged or no event file: the rest of it is not read")
            return 0
        if len(events) < most:
            followed.seen = state
        self._shipper.write(_records(events, group_of(found)))
        return len(events)


def group_of(found: Found) -> str:
    """The file's folder, relative to the watched folder: ``train``, ``validation``; empty in the watched folder."""
    folder = found.path.parent.relative_to(found.root).as_posix()
    return "" if folder == "." else folder


def _records(events: Sequence[Event], group: str) -> list[Record]:
    """Consecutive events of the same step become one record."""
    now = time.time()
    records: list[Record] = []
    before: Event | None = None
    values: dict[str, float] = {}
    for event in events:
        if before is not None and event.step == before.step and values.keys().isdisjoint(event.scalars):
            values.update(event.scalars)
            continue
        values = dict(event.scalars)
        wall_time = event.wall_time if 0 < event.wall_time < 1e11 else now
        etimes = {"iteration": event.step, "wall_time": wall_time}
        records.append(Record(int(wall_time * 1000), values, group, etimes))
        before = event
    return records
