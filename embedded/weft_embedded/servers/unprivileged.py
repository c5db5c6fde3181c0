"""The user that PostgreSQL runs as when root starts it: it refuses to run as root.

The programs may be in a folder that only root may enter, such as root's own home, and so may the data.
:mod:`weft_embedded.guard` has the two ways around; which of them work depends on what a container allows root.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

from weft_embedded import guard
from weft_embedded.part import PartError

_WAYS = {"namespace": "in a user namespace", "nobody": f"as {guard.UNPRIVILEGED}"}


def choose_way(program: Path, sockets: Path, data: Path) -> str:
    """The guard's way in which this user can run ``program`` on a data folder, which need not be there yet.

    Data that an earlier start gave to `nobody` stays `nobody`'s, if that works here.

    Raises:
        PartError: no way works; says why.
    """
    if os.geteuid() != 0:
        return "same"
    ways = list(_WAYS)
    if data.exists() and data.stat().st_uid != 0:
        ways.reverse()
    wanted = [f"rx:{program}", f"wx:{sockets}", f"x:{data.parent}"]
    reasons = []
    for way in ways:
        command = [sys.executable, "-I", "-S", guard.__file__, "--check", way, *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return way
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        reasons.append(f"{_WAYS[way]}: {said[-1]}")
    raise PartError(
        "PostgreSQL refuses to run as root, and root can't start it as somebody else here "
        f"({'; '.join(reasons)}). Run `weft up` as an ordinary user"
    )


def hand_over(data: Path, way: str) -> None:
    """Make the data folder belong to the user that PostgreSQL runs as, which PostgreSQL requires.

    Raises:
        PartError: the owner can't be changed.
    """
    owner = os.geteuid() if way != "nobody" else pwd.getpwnam(guard.UNPRIVILEGED).pw_uid
    if data.stat().st_uid == owner:
        return
    try:
        for folder, _, files in os.walk(data, topdown=False):  # the folder itself last: done halfway, it is done again
            for name in files:
                os.chown(Path(folder) / name, owner, -1, follow_symlinks=False)
            os.chown(folder, owner, -1)
    except OSError as error:
        raise PartError(f"PostgreSQL can't be given its data: {error.strerror} ({error.filename})") from error
