"""Memory limits by the kernel's control groups, version 2 or 1, wherever this process may make some."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft_core import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc/self")


class MemoryGroup:
    """A control group of its own for one learner's processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._two = (folder / "memory.max").exists()

    @staticmethod
    def make(name: str, limit: int) -> MemoryGroup | None:
        """A fresh group with this limit in bytes; None where the machine lets this process make none."""
        for parent in _parents():
            group = _make_in(parent, name)
            if group is None:
                continue
            try:
                group._limit(limit)
            except OSError:
                group.remove()
                continue
            return group
        return None

    @staticmethod
    def find(name: str) -> MemoryGroup | None:
        """The group that :meth:`make` made, if it is still there."""
        folders = (parent / name for parent in _parents())
        return next((MemoryGroup(folder) for folder in folders if folder.is_dir()), None)

    def enter(self, pid: int) -> bool:
        """Move a process in; whether the kernel allowed it."""
        try:
            (self.folder / "cgroup.procs").write_text(str(pid))
        except OSError:
            return False
        return True

    def pids(self) -> list[int]:
        try:
            return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def oom_kills(self) -> int:
        """How many of its processes the kernel has killed for memory."""
        name = "memory.events" if self._two else "memory.oom_control"
        with suppress(OSError):
            for line in (self.folder / name).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
        return 0

    def remove(self) -> None:
        """Take it away; groups that its processes made in it too."""
        inner = [Path(path) for path, _, _ in os.walk(self.folder, topdown=False)] or [self.folder]
        for _ in range(50):
            for folder in inner:
                with suppress(OSError):
                    folder.rmdir()
            if not self.folder.exists():
                return
            time.sleep(0.01)  # the kernel takes a moment to remove the last process

    def _limit(self, limit: int) -> None:
        # Not memory.oom.group: it would take the agent too, and with it the last lines of the log, which say why. The
        # kernel picks the fattest process, which is the training's; the agent reports it and ends the rest.
        if self._two:
            (self.folder / "memory.max").write_text(str(limit))
            swap = self.folder / "memory.swap.max"
            value = "0"
        else:
            (self.folder / "memory.limit_in_bytes").write_text(str(limit))
            swap = self.folder / "memory.memsw.limit_in_bytes"
            value = str(limit)
        with suppress(OSError):  # there are kernels that don't count swap
            swap.write_text(value)


def memory_limit() -> int | None:
    """The tightest limit in bytes that this process lives under; None: none."""
    limits = [
        int(text)
        for folder in _lineage("memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _read(folder / name)).isdecimal() and int(text) < 1 << 60  # version 1 writes a huge number for none
    ]
    return min(limits, default=None)


def cpu_limit() -> float | None:
    """How many CPUs' time this process may use; None: no limit."""
    limits = []
    for folder in _lineage("cpu"):
        words = _read(folder / "cpu.max").split() or [
            _read(folder / "cpu.cfs_quota_us"),
            _read(folder / "cpu.cfs_period_us"),
        ]
        if all(word.isdecimal() for word in words) and int(words[1]):
            limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)


def machine_oom_kills() -> int:
    """How many processes the kernel has killed for memory on this machine since boot."""
    for line in _read(Path("/proc/vmstat")).splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill":
            return int(value)
    return 0


def _make_in(parent: Path, name: str) -> MemoryGroup | None:
    folder = parent / name
    try:
        folder.mkdir(mode=0o755, exist_ok=True)
    except OSError:
        return None
    if not any((folder / limit).exists() for limit in ("memory.max", "memory.limit_in_bytes")):
        with suppress(OSError):  # refused while processes are in the parent itself
            (parent / "cgroup.subtree_control").write_text("+memory")
        if not (folder / "memory.max").exists():
            folder.rmdir()
            return None
    group = MemoryGroup(folder)
    for pid in group.pids():  # of a learner that was here before under the same name, and lost its supervisor
        if who := processes.identity(pid):
            processes.send(who, signal.SIGKILL)
    return group


def _parents() -> Iterator[Path]:
    """Where a group could be made: below this process's own, else (version 2) beside it.

    Version 2 has no limits below a group that holds processes itself. Beside it is only right where it has no limit of
    its own, as that would no longer count.
    """
    for folder in _lineage("memory"):
        yield folder
        if _read(folder / "memory.max") != "max":  # it has a limit, or this is version 1
            return


def _lineage(controller: str) -> Iterator[Path]:
    """This process's group for ``controller``, then those above it as far as they can be seen from here."""
    place = _own(controller)
    if place is None:
        return
    mount, path = place
    folder = mount / path
    while True:
        yield folder
        if folder == mount:
            return
        folder = folder.parent


def _own(controller: str) -> tuple[Path, str] | None:
    """The mount of the hierarchy that has ``controller``, and this process's group in it."""
    groups: dict[str, str] = {}  # controllers of a hierarchy ('' for version 2) -> path in it
    for line in _read(_PROC / "cgroup").splitlines():
        _, controllers, own = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), own))
    for line in _read(_PROC / "mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, mount = fields.split(" ")[3:5]
        if kind == "cgroup" and controller in options.split(","):
            hierarchy = controller
        elif kind == "cgroup2" and controller in _read(Path(mount) / "cgroup.controllers").split():
            hierarchy = ""
        else:
            continue
        if (path := groups.get(hierarchy)) is not None:
            inside = os.path.relpath(path, root)  # a container may see only its part of the hierarchy
            return Path(mount), "." if inside.startswith("..") else inside
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
