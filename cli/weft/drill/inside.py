"""Runs in a learner, beside its program: sees its saves, and kills it at a chosen moment. Needs Python 3.8 and no more.

    python -c SOURCE KIND SAVES SECONDS new|resumed [FILE…]

``watch`` only sees saves; ``kill`` and ``halt`` come SECONDS after so many saves of this attempt, ``kill in a save`` in
the next save, ``now`` at once. Prints a line of JSON for each save, and for the moment. The reader of that line acts if
it is for ``halt`` or ``moment``. The files of a ``new`` program are its first save. A ``resumed`` program begins with
files.

Numbers in names count as ``#``. A program may write the files of a save one after the other, with pauses. Each pause
ends a *part*, and the part with one of the FILEs ends the save; without FILEs, each part is a save. A kill in a save
comes with the first change, or SECONDS after the first part.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator

QUIET = 0.3
"""Seconds without a change after which a part is complete."""
LONG = 3.0
"""A program that writes all the time is taken to save as often."""
DRAFTS = (".tmp", ".temp", ".part", ".partial", ".incomplete", "~")


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
    """Counts saves: changes in the folder with less than QUIET seconds between them are one part of a save."""

    def __init__(self, folder: str, resumed: bool, last: set[str]) -> None:
        self.folder = folder
        self.files = self.saved = listing(folder)
        self.last = last
        self.parts = self.saves = 0
        self.begun: float | None = None
        self.changed = 0.0
        if self.files and not resumed:
            self.count({})

    def look(self) -> bool:
        """Whether a part begins with this look."""
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
        """Count a part. A file in it that is still the same file was written in place."""
        changed = [
            path for path, stamp in self.files.items() if before.get(path) != stamp and not path.endswith(DRAFTS)
        ]
        self.saved = self.files
        if not changed:
            return
        names = {re.sub("[0-9]+", "#", path) for path in changed}
        self.parts += 1
        self.saves += not self.last or not names.isdisjoint(self.last)
        say(
            part=self.parts,
            save=self.saves,
            at=max(self.files[path][1] for path in changed) / 1e9,
            files=sorted(names)[:100],
            in_place=[path for path in changed if path in before and before[path][0] == self.files[path][0]][:10],
        )


def main(kind: str, saves: int, seconds: float, resumed: bool, last: set[str]) -> None:
    if kind == "now":
        kill()
        return
    watch = Watch(os.environ["CHECKPOINT_DIR"], resumed, last)
    say(watching=kind)
    while kind == "watch" or watch.saves < saves:
        watch.look()
        time.sleep(0.01)
    if kind == "kill in a save":
        parts = watch.parts
        begun = False
        while not begun or (seconds and watch.parts == parts):
            time.sleep(0.002)
            begun = watch.look() or begun
    time.sleep(seconds)
    if kind in ("halt", "moment"):
        say(moment=time.time(), processes=0)
    else:
        kill()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "resumed", set(sys.argv[5:]))
