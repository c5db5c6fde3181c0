"""Folders that a program can read and not write, in a mount namespace of its own.

Several jobs share an image's environment, the agent's code and an unpacked overlay. A program that changed them would
change what other jobs import. Where the kernel allows no namespace (mostly in a container without privileges), the
program runs without one: there, each learner has the file system of its own container.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 0x1, 0x20, 0x1000, 0x4000, 0x80000
# Flags of a mount that a user namespace may not drop, by statvfs' bits: they are the same as mount's.
_KEPT = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME


@dataclass(frozen=True)
class Sealed:
    """The folders that a program can't write."""

    folders: Sequence[Path] = ()
    as_user: bool = True
    """Whether an ordinary user's program is sealed, too, for which it needs a user namespace. It keeps its user and its
    group there. Processes of different user namespaces can't read each other's memory."""


NOTHING = Sealed()


def sealer(sealed: Sealed) -> Callable[[], object] | None:
    """Run by a process before its exec, makes folders read-only for it and all that it starts. None: there is nothing
    to be done. Call it before the fork, after which little is safe."""
    user, group = os.geteuid(), os.getegid()
    folders = sealed.folders if sealed.as_user or user == 0 else ()
    places = [os.fsencode(folder) for folder in folders if folder.is_dir()]
    flags = [_MS_BIND | _MS_REMOUNT | _MS_RDONLY | (os.statvfs(place).f_flag & _KEPT) for place in places]
    if not places:
        return None
    try:
        libc = ctypes.CDLL(None)
        unshare, mount = libc.unshare, libc.mount
    except (OSError, AttributeError):
        return None

    def seal() -> None:
        if user != 0 and unshare(_CLONE_NEWUSER | _CLONE_NEWNS) == 0:
            _write("/proc/self/setgroups", b"deny")
            _write("/proc/self/uid_map", b"%d %d 1" % (user, user))
            _write("/proc/self/gid_map", b"%d %d 1" % (group, group))
        elif user != 0 or unshare(_CLONE_NEWNS) != 0:
            return
        mount(None, b"/", None, _MS_REC | _MS_SLAVE, None)
        for place, flag in zip(places, flags, strict=True):
            if mount(place, place, None, _MS_BIND | _MS_REC, None) == 0:
                mount(None, place, None, flag, None)

    return seal


def _write(path: str, text: bytes) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY)
        try:
            os.write(file, text)
        finally:
            os.close(file)
