"""The scalars of all TensorBoard event files that a program writes below the watched folders."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from weft_trainer.growing import Found, open_regular
from weft_trainer.metrics.events import Broken, Event, EventFile
from weft_trainer.metrics.records import Record
from weft_trainer.metrics.runs import Runs
from weft_trainer.metrics.shipper import MetricShipper

_MARK = "tfevents"
_HEAD = 4096
"""Bytes; they begin with the moment at which the file was begun."""
_BEGINNING = 64
"""Bytes, of which that moment is a part."""
_EVENTS = 10_000
"""The most events in one read: some 0.2 s of one core."""


class _Followed:
    def __init__(self) -> None:
        self.reader = EventFile()
        self.path: Path | None = None
        self.beginning = b""  # of what has been read of it
        self.seen = (-1, -1)  # its size and time of change when it was read to its end
        self.broken = False
        self.checked = False  # whether it is known to be no copy of another file


class EventFiles:
    """Follows every event file, also when it is renamed.

    Args:
        say: writes a line into the job's log.
        folder: the job's. A metric that another source writes, too, is not taken from the files there.
        before: files that were there before the program started, and that do not count.
    """

    def __init__(
        self,
        shipper: MetricShipper,
        say: Callable[[str], None],
        folder: Path | None = None,
        before: Sequence[Found] = (),
    ) -> None:
        self._shipper = shipper
        self._say = say
        self._folder = folder
        self._before = {(file.path, file.status.st_ino) for file in before}
        self._runs = Runs()
        self._files: dict[tuple[int, int], _Followed] = {}

    def read(self, found: Sequence[Found]) -> bool:
        event_files = [file for file in found if is_event_file(file.path.name) and self._is_new(file)]
        groups = self._groups(event_files)
        files: dict[tuple[int, int], _Followed] = {}
        left = _EVENTS
        for file in sorted(event_files, key=lambda file: file.path):
            identity = (file.status.st_dev, file.status.st_ino)
            followed = files[identity] = self._known(identity, file) or _Followed()
            if not followed.checked and file.status.st_size:
                followed.broken = self._is_copy(file, event_files, self._files | files)
                followed.checked = True
            left -= self._read(file, followed, groups[file.path], left)
        self._files = files  # the others are gone, and other files may get their inode numbers
        return left <= 0

    def _known(self, identity: tuple[int, int], file: Found) -> _Followed | None:
        """What is known of a file, perhaps under another name. None: nothing is, as when its inode was another file's
        until the last read, or when it was begun anew."""
        followed = self._files.get(identity)
        if followed is None or (followed.path == file.path and followed.seen == _state(file)):
            return followed
        try:
            with open_regular(file.path) as opened:
                is_same = os.pread(opened, len(followed.beginning), 0) == followed.beginning
        except OSError:
            is_same = True  # removed or renamed meanwhile: the next read shows
        return followed if is_same else None

    def _is_new(self, file: Found) -> bool:
        return (file.path, file.status.st_ino) not in self._before

    def _groups(self, files: Sequence[Found]) -> dict[Path, str]:
        """The group of each file."""
        groups = {file.path: group_of(file) for file in files if file.root != self._folder}
        for group in groups.values():
            self._runs.take(group)
        own = {file.path: _folder_of(file) for file in files if file.root == self._folder}
        self._runs.add(own.values())
        return groups | {path: self._runs.group(folder) for path, folder in own.items()}

    def _is_copy(self, file: Found, others: Sequence[Found], followed: Mapping[tuple[int, int], _Followed]) -> bool:
        """Whether the file is a copy of one that is read already, and either of them is in the job's folder: programs
        copy ``runs/`` to RESULT_DIR."""
        for other in others:
            if other.path.name != file.path.name or self._folder not in (file.root, other.root):
                continue
            state = followed.get((other.status.st_dev, other.status.st_ino))
            if state and state.checked and not state.broken and _same_head(file.path, other.path):
                return True
        return False

    def _read(self, found: Found, followed: _Followed, group: str, most: int) -> int:
        state = _state(found)
        followed.path = found.path
        if followed.broken or followed.seen == state or most <= 0:
            return 0
        try:
            with open_regular(found.path) as file:
                events = followed.reader.read(file, most)
                followed.beginning = os.pread(file, min(_BEGINNING, followed.reader.offset), 0)
        except OSError:
            return 0  # removed or renamed meanwhile: the next read shows
        except Broken:
            followed.broken = True
            self._say(f"weft: metrics: {found.path.name} is damaged or no event file: the rest of it is not read")
            return 0
        if len(events) < most:
            followed.seen = state
        self._shipper.write(_records(events, group), yields=found.root == self._folder)
        return len(events)


def _state(file: Found) -> tuple[int, int]:
    return file.status.st_size, file.status.st_mtime_ns


def is_event_file(name: str) -> bool:
    return _MARK in name


def group_of(found: Found) -> str:
    """The file's folder, relative to the watched folder: ``train``, ``validation``; empty in the watched folder."""
    return "/".join(_folder_of(found).parts)


def _folder_of(found: Found) -> PurePosixPath:
    return PurePosixPath(found.path.parent.relative_to(found.root))


def _same_head(path: Path, other: Path) -> bool:
    try:
        with open_regular(path) as file, open_regular(other) as another:
            mine, its = os.pread(file, _HEAD, 0), os.pread(another, _HEAD, 0)
    except OSError:
        return False
    shared = min(len(mine), len(its))
    return shared > 0 and mine[:shared] == its[:shared]


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
