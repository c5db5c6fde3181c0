"""Which files of a folder belong together: a generation must be a state in which the folder was at one moment.

A program that saves several files (a model, its optimizer, an index) must never get back a mix of new and old files.
So a state counts once the folder is at rest: between two scans nothing has changed, and no process has a file open for
writing. If a part of it never comes to rest, the other parts count alone: each folder directly in CHECKPOINT_DIR is a
*group*, and all files beside them are one more (its name is ""). See docs/checkpoints.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from weft_trainer.checkpoints.generations import Entry
from weft_trainer.checkpoints.scan import FileStamp, being_written, has_settled, is_temporary, saving, scan, temporaries
from weft_trainer.stores.paths import below

_GAPS = (1.0,) * 5
"""Seconds between two scans."""
_QUICK_GAPS = (0.25, 0.1, 0.05, 0.02)
"""Then, for programs that save more often than that."""
_LOG_SECONDS = 60.0
"""A file that has been open for so long and was never complete is written to all the time. Nothing waits for it."""
_SUSPECT_NS = 3 * 10**9
"""A file that was written so shortly before its writer was killed may be half a file."""
_TOGETHER_NS = 60 * 10**9
"""Files of the same save are written within this time."""


class State(NamedTuple):
    """A folder at one moment."""

    found: Mapping[str, FileStamp]
    torn: frozenset[str] = frozenset()
    """Files that are not complete, or not for sure; with them their groups are as they were stored last."""
    logs: frozenset[str] = frozenset()
    """Files that are written to all the time: only their own last stored state counts."""
    saving: frozenset[str] = frozenset()
    """Groups of which the program itself says that it is saving; "": all of them."""

    @property
    def at_rest(self) -> bool:
        return not self.torn and not self.saving

    def select(self, last: Mapping[str, Entry]) -> tuple[dict[str, FileStamp], dict[str, Entry]]:
        """The content of a generation of this state: files as they are now, and entries of the generation before.

        Args:
            last: the entries of the generation before.
        """
        torn = {group_of(key) for key in self.torn} | self.saving
        everything = "" in self.saving
        now: dict[str, FileStamp] = {}
        kept = {key: entry for key, entry in last.items() if everything or group_of(key) in torn}
        if everything:
            return now, kept
        stored = {group_of(key) for key in kept}
        for key, stamp in self.found.items():
            group = group_of(key)
            if group in stored or group in self.saving or key in self.torn or (group in torn and group):
                continue
            if key not in self.logs:
                now[key] = stamp
            elif key in last:
                kept[key] = last[key]
        return now, kept


def group_of(key: str) -> str:
    return key.partition("/")[0] if "/" in key else ""


class Settler:
    """Finds moments at which the folder is at rest.

    Args:
        folder: CHECKPOINT_DIR.
        pause: sleeps so many seconds; True when the wait is to end.
    """

    def __init__(self, folder: Path, pause: Callable[[float], bool]) -> None:
        self._folder = folder
        self._pause = pause
        self._open_since: dict[str, float] = {}

    def settle(self, longest: float, last: Mapping[str, Entry]) -> State:
        """The folder as soon as it is at rest; after a few seconds as it is then.

        Args:
            longest: seconds between two scans, at most.
            last: the entries of the last generation.
        """
        before = scan(self._folder)
        opened: set[str] = set()
        restless: set[str] = set()
        state = State({})
        for number, gap in enumerate((*_GAPS, *_QUICK_GAPS)):
            if 2 <= number < len(_GAPS) and not opened:
                continue  # no file is open for long: the program saves more often than that
            stopping = self._pause(min(gap, longest))
            found = scan(self._folder)
            writing = being_written(self._folder) if found else set()
            logs = self._logs(writing, last)
            opened |= writing - logs
            changed = {key for key in before.keys() | found.keys() if before.get(key) != found.get(key)} - logs
            restless |= changed
            # Where a temporary file is being written, more files may follow it.
            drafts = {group_of(key) for key in writing if is_temporary(key)}
            more = {group: news(found, group, last) for group in drafts}
            if gap in _QUICK_GAPS:
                # A program that takes longer over a file is not at rest between two files.
                changed |= opened & found.keys()
                changed -= {key for key in changed - opened if _replaced(key, restless, before, found)}
                more = {group: keys for group, keys in more.items() if not _whole(keys, group, last)}
            torn = frozenset(changed | (writing - logs) & found.keys()).union(*more.values())
            state = State(found, torn, frozenset(logs), frozenset(saving(self._folder)))
            if state.at_rest or stopping:
                break
            before = found
        return state

    def _logs(self, writing: set[str], stored: Collection[str]) -> set[str]:
        now = time.monotonic()
        self._open_since = {key: self._open_since.get(key, now) for key in writing if not is_temporary(key)}
        return {key for key, since in self._open_since.items() if now - since >= _LOG_SECONDS and key not in stored}


def _replaced(key: str, restless: set[str], before: Mapping[str, FileStamp], found: Mapping[str, FileStamp]) -> bool:
    """Whether a file was put in place of another by a rename, so is complete, and is all that its group has changed."""
    if key not in before or key not in found or before[key].inode == found[key].inode:
        return False
    return not any(other != key and group_of(other) == group_of(key) for other in restless)


def torn_by_kill(folder: Path, killed_at: float, last: Mapping[str, Entry]) -> frozenset[str]:
    """Files that a writer, killed then (seconds since the epoch), may have left half written, or without the files that
    belong to them."""
    since = killed_at * 1e9 - _SUSPECT_NS
    found = scan(folder)
    fresh = {key for key, stamp in found.items() if stamp.mtime_ns >= since}
    doing = {group_of(key) for key, stamp in temporaries(folder).items() if stamp.mtime_ns >= since}
    half = frozenset(key for key in fresh if not has_settled(below(folder, key)))
    return half | unfinished(found, doing | {group_of(key) for key in fresh}, last)


def unfinished(found: Mapping[str, FileStamp], groups: Collection[str], last: Mapping[str, Entry]) -> frozenset[str]:
    """Files written since the last generation in ``groups`` in which a save was under way when its program ended, where
    a part of the group's files has been replaced. New names leave the old files as they are, so they count."""
    torn: set[str] = set()
    for group in groups:
        keys = news(found, group, last)
        if not keys.isdisjoint(last) and not _whole(keys, group, last):
            torn |= keys
    return frozenset(torn)


def news(found: Mapping[str, FileStamp], group: str, last: Mapping[str, Entry]) -> set[str]:
    """The files of a group that have changed since they were stored last."""
    return {
        key
        for key, stamp in found.items()
        if group_of(key) == group and (key not in last or last[key].mtime_ns != stamp.mtime_ns)
    }


def _whole(keys: Collection[str], group: str, last: Mapping[str, Entry]) -> bool:
    """Whether new files of a group are a whole checkpoint: a single file, in place of a file beside which no other
    was saved the last time."""
    if len(keys) != 1:
        return not keys
    [key] = keys
    return key in last and not any(
        other != key and group_of(other) == group and abs(entry.mtime_ns - last[key].mtime_ns) < _TOGETHER_NS
        for other, entry in last.items()
    )
