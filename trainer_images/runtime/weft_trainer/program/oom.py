"""Whether the kernel killed a process for memory, by its counts of such kills."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple


class Kills(NamedTuple):
    """How often the kernel has killed for memory."""

    number: int
    own: bool
    """The count is of this learner's control group. Otherwise it is of the machine, whose other jobs count as well."""

    def since(self, before: Kills) -> str:
        """``out of memory`` if the kernel has killed a process of this learner since ``before``; ``probably out of
        memory`` if it has killed some process of the machine; else empty."""
        if self.own != before.own or self.number <= before.number:
            return ""
        return "out of memory" if self.own else "probably out of memory"


def kills(proc: Path = Path("/proc")) -> Kills:
    """The count of the learner's control group if it can be read, else the machine's."""
    for path in _counters(proc / "self"):
        if (count := _count(path)) is not None:
            return Kills(count, True)
    return Kills(_count(proc / "vmstat") or 0, False)


def _count(path: Path) -> int | None:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return None


def _counters(process: Path) -> list[Path]:
    """Files of the process's control group with a line ``oom_kill N``; versions 1 and 2 may be mounted together.

    A container often sees its own group mounted as the root, while ``/proc/self/cgroup`` still has the path from the
    root of the machine. So the path is taken relative to what is mounted (``man 5 proc``, mountinfo).
    """
    found = []
    try:
        groups = [line.split(":", 2)[1:] for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
        for controllers, path in groups:
            if "memory" in controllers.split(","):
                kind, name = "cgroup", "memory.oom_control"
            elif not controllers:
                kind, name = "cgroup2", "memory.events"
            else:
                continue
            for mount in mounts:
                fields = mount[mount.index("-") + 1 :]
                right = fields[0] == kind and (kind == "cgroup2" or "memory" in fields[2].split(","))
                if right and PurePosixPath(path).is_relative_to(mount[3]):
                    found.append(Path(mount[4], PurePosixPath(path).relative_to(mount[3]), name))
    except (OSError, ValueError, IndexError):
        pass
    return found
