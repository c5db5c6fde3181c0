"""Folders that a program can read and not write, or not even see, in a mount namespace of its own.

Several jobs share an image's environment, the agent's code and an unpacked overlay. A program that changed them would
change what other jobs import. Where the kernel allows no namespace (mostly in a container without privileges), the
program runs without one: there, each learner has the file system of its own container.

In a sandbox of the local engine's, the agent has the right to make mounts, and sees the engine's folder with the runs
and the cache. The program sees its learner's folders in there and nothing else, and has no rights at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = (
    0x1,
    0x2,
    0x4,
    0x20,
    0x1000,
    0x4000,
    0x80000,
)
# Flags of a mount that a user namespace may not drop, by statvfs' bits: they are the same as mount's.
_KEPT = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = 64
"""At least as many as any kernel has."""


class Sealed(NamedTuple):
    """The folders that a program can't write, or not see."""

    folders: Sequence[Path] = ()
    """They can only be read."""
    as_user: bool = True
    """Whether an ordinary user's program is sealed, too, for which it needs a user namespace. It keeps its user and its
    group there. Processes of different user namespaces can't read each other's memory."""
    hidden: Sequence[Path] = ()
    """In a sandbox: the program sees nothing in them but ``folders`` and ``own``. Any: it loses all rights."""
    own: Sequence[Path] = ()
    """The learner's folders, which it can write."""


NOTHING = Sealed()


def sealer(sealed: Sealed) -> Callable[[], object] | None:
    """Run by a process before its exec, makes folders read-only or hides them, for it and all that it starts. None:
    there is nothing to be done. Call it before the fork, after which little is safe."""
    if sealed.hidden:
        return _confiner(sealed)
    user, group = os.geteuid(), os.getegid()
    folders = sealed.folders if sealed.as_user or user == 0 else ()
    places = [os.fsencode(folder) for folder in folders if folder.is_dir()]
    flags = [_read_only(place) for place in places]
    if not places:
        return None
    try:
        libc = ctypes.CDLL(None)
        unshare, mount, prctl = libc.unshare, libc.mount, libc.prctl
    except (OSError, AttributeError):
        return None

    def seal() -> None:
        if user != 0 and unshare(_CLONE_NEWUSER | _CLONE_NEWNS) == 0:
            # The agent hides its memory, and so root owns these files of its child's. Without its identity the program
            # would be the user 65534.
            prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
            _write("/proc/self/setgroups", b"deny")
            _write("/proc/self/uid_map", b"%d %d 1" % (user, user))
            _write("/proc/self/gid_map", b"%d %d 1" % (group, group))
            prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # until the program takes its place
        elif user != 0 or unshare(_CLONE_NEWNS) != 0:
            return
        mount(None, b"/", None, _MS_REC | _MS_SLAVE, None)
        for place, flag in zip(places, flags, strict=True):
            if mount(place, place, None, _MS_BIND | _MS_REC, None) == 0:
                mount(None, place, None, flag, None)

    return seal


def _confiner(sealed: Sealed) -> Callable[[], object]:
    """As :func:`sealer`, in a sandbox. Any failure there ends the process before it becomes the user's."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Outer folders first, so that none covers one in it.
    hidden = [os.fsencode(folder) for folder in sealed.hidden if folder.is_dir()]
    shown = sorted(
        [(os.fsencode(folder), False) for folder in sealed.own if folder.is_dir()]
        + [(os.fsencode(folder), True) for folder in sealed.folders if folder.is_dir()]
    )
    read_only = {place: _read_only(place) for place, is_sealed in shown if is_sealed}
    no_rights = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)

    def done(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def confine() -> None:
        here = os.getcwdb()
        done(libc.unshare(_CLONE_NEWNS))
        done(libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None))
        opened = [(place, os.open(place, os.O_PATH | os.O_CLOEXEC)) for place, _ in shown]
        for place in hidden:
            done(libc.mount(b"tmpfs", place, b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0755,size=1m"))
        for place, file in opened:
            os.makedirs(place, exist_ok=True)
            done(libc.mount(b"/proc/self/fd/%d" % file, place, None, _MS_BIND | _MS_REC, None))
            if place in read_only:
                done(libc.mount(None, place, None, read_only[place], None))
        for place in hidden:
            done(libc.mount(None, place, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None))
        os.chdir(here)  # it was a folder of the mount that is hidden now, with a way up from there
        for capability in range(_CAPABILITIES):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        done(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
        done(libc.capset(*no_rights))

    return confine


def _read_only(place: bytes) -> int:
    return _MS_BIND | _MS_REMOUNT | _MS_RDONLY | (os.statvfs(place).f_flag & _KEPT)


def _write(path: str, text: bytes) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY)
        try:
            os.write(file, text)
        finally:
            os.close(file)
