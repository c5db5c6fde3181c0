"""Runs in a learner, beside its program: sees its saves, and kills it at a chosen moment. Needs Python 3.8 and no more.

    python -c SOURCE KIND SAVES SECONDS new|resumed

``watch`` only sees saves; ``kill`` and ``halt`` come SECONDS after so many saves of this attempt, ``kill in a save`` at
the first change of the next save, ``now`` at once. Prints a line of JSON for each save, and for the moment. The reader
of that line acts if it is for ``halt`` or ``moment``. The files of a ``new`` program are its first save. A ``resumed``
program begins with files.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator

QUIET = 0.3
"""Seconds without a change after which a save is complete."""
LONG = 1.0
"""A program that saves all the time is taken to save as often."""


def listing(folder: str) -> dict[str, tuple[int, int, int]]:
    """Inode, time and size of each file."""
    found: dict[str, tuple[int, int, int]] = {}
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        stat = entry.stat(follow_symlinks=False)
                        found[os.path.relpath(entry.path, folder)] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except OSError:
            pass  # replaced in this moment
    return found


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


def program() -> Iterator[int]:
    """The processes that have this CHECKPOINT_DIR, without this process's session."""
    wanted = ("CHECKPOINT_DIR=" + os.environ["CHECKPOINT_DIR"]).encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/" + name + "/environ", "rb") as file:
                    ours = wanted in file.read().split(b"\0")
                if ours and os.getsid(int(name)) != os.getsid(0):
                    yield int(name)
            except OSError:
                pass  # ended, or another user's


def kill() -> None:
    pids = sorted(program())
    say(moment=time.time(), processes=len(pids))
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


class Watch:
    """Counts saves: changes in the folder with less than QUIET seconds between them are one save."""

    def __init__(self, folder: str, resumed: bool) -> None:
        self.folder = folder
        self.files = self.saved = listing(folder)
        self.saves = 0
        self.begun: float | None = None
        self.changed = 0.0
        if self.files and not resumed:
            self.count({})

    def look(self) -> bool:
        """Whether a save begins with this look."""
        files, now = listing(self.folder), time.time()
        begins = False
        if files != self.files:
            begins = self.begun is None
            self.begun = now if begins else self.begun
            self.files, self.changed = files, now
        if self.begun is not None and (now - self.changed >= QUIET or now - self.begun >= LONG):
            self.begun = None
            self.count(self.saved)
        return begins

    def count(self, before: dict[str, tuple[int, int, int]]) -> None:
        """A file that has changed, and is still the same file, was written in place."""
        self.saves += 1
        self.saved = self.files
        in_place = [
            path
            for path, stamp in self.files.items()
            if before.get(path, stamp) != stamp and before[path][0] == stamp[0]
        ]
        times = [stamp[1] / 1e9 for stamp in self.files.values()]
        say(save=self.saves, at=max(times) if times else time.time(), in_place=in_place[:10])


def main(kind: str, saves: int, seconds: float, resumed: bool) -> None:
    if kind == "now":
        kill()
        return
    watch = Watch(os.environ["CHECKPOINT_DIR"], resumed)
    say(watching=kind)
    while kind == "watch" or watch.saves < saves:
        watch.look()
        time.sleep(0.01)
    if kind == "kill in a save":
        while not watch.look():
            time.sleep(0.002)
    else:
        time.sleep(seconds)
    if kind in ("halt", "moment"):
        say(moment=time.time(), processes=0)
    else:
        kill()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "resumed")
