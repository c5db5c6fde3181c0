"""A user for the learners of each project, on machines that allow no sandbox: mostly in a container.

The user can read the images' environments. It can read and write the folders of its learners and its project's part of
the cache. The kernel keeps it from the files, environments and memory of other users' processes, the worker's included.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from weft_core.engine import LaunchRefused

# By their numbers, man 7 capabilities: to give folders to users, to enter and remove them, and to start and end
# processes as them.
_NEEDED = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
_ENTER = 0o011


def obstacle() -> str:
    """The reason for which this worker can't start learners as other users; empty: it can."""
    status = Path("/proc/self/status").read_text()
    [mask] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")]
    lacking = [name for name, number in _NEEDED.items() if not mask >> number & 1]
    return f"the worker lacks the rights {', '.join(lacking)} of root" if lacking else ""


def assign(cache: Path, project: str, first: int, last: int) -> int:
    """The user of a project, who is the owner of its part of the cache. The caller holds a lock.

    Args:
        cache: holds a folder for each project.

    Raises:
        LaunchRefused: all users are taken.
    """
    own = cache / project
    there = own.stat().st_uid
    if first <= there <= last:
        return there
    taken = {entry.stat(follow_symlinks=False).st_uid for entry in os.scandir(cache)}
    free = next((user for user in range(first, last + 1) if user not in taken), None)
    if free is None:
        raise LaunchRefused(f"all users from {first} to {last} have a project (the engine's setting is 'users')")
    for folder, _, names in os.walk(own, topdown=False):  # last of all its own folder, whose owner is what counts
        for place in (*(os.path.join(folder, name) for name in names), folder):
            os.chown(place, free, free, follow_symlinks=False)
    return free


def open_way(folders: Iterable[Path]) -> None:
    """Let all users pass through folders, without seeing what is in them."""
    for folder in filter(Path.is_dir, folders):
        mode = folder.stat().st_mode & 0o7777
        if mode & _ENTER != _ENTER:
            folder.chmod(mode | _ENTER)
