"""Ties a process to its supervisor, then becomes it: ``guard.py PARENT SIGNAL WAY PROGRAM [ARGUMENT…]``.

Run as a script by a bare interpreter (``python -I -S``, ~15 ms), because what it does must happen between fork and
exec, and Python's ``preexec_fn`` is unsafe beside threads. It imports the standard library only.

When the parent dies, by whatever means, the kernel sends SIGNAL to this process (``PR_SET_PDEATHSIG``). WAY says which
user the program runs as:

- ``same``: the user who started it.
- ``namespace``: the same user, who is called `nobody` inside a user namespace. Files and signals are as before; only
  the program believes that it is not root. Containers often forbid it.
- ``nobody``: `nobody`, but with root's right to pass folders and files that others may not.

``guard.py --check WAY MODE:PATH…`` checks whether that works here and whether the program could use those paths (MODE:
some of ``rwx``). Exit code 1 and a reason on stderr: it could not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import struct
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
_CLONE_NEWUSER = 0x10000000
_MODES = {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}
UNPRIVILEGED = "nobody"

_libc = ctypes.CDLL(None, use_errno=True)


def _done(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _prctl(option: int, *arguments: int) -> None:
    padded = [*arguments, 0, 0, 0, 0][:4]
    _done(_libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(argument) for argument in padded)), f"prctl({option})")


def enter_namespace() -> None:
    """Enter a user namespace in which this user is called `nobody`; raises OSError where that is forbidden."""
    called = pwd.getpwnam(UNPRIVILEGED)  # a name is needed: PostgreSQL looks its user up
    user, group = os.geteuid(), os.getegid()
    _done(_libc.unshare(_CLONE_NEWUSER), "a new user namespace")
    # The kernel's condition for mapping a group without rights over the outer namespace.
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{called.pw_uid} {user} 1"),
        ("gid_map", f"{called.pw_gid} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def become_nobody() -> None:
    """Become `nobody`; as far as root has it here, keep CAP_DAC_OVERRIDE across the exec that follows."""
    user = pwd.getpwnam(UNPRIVILEGED)
    # By default, access(2) ignores the capabilities of users other than root. PostgreSQL uses it to check whether it
    # may run its own programs.
    with contextlib.suppress(OSError):
        _prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP)
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    mask = 1 << _CAP_DAC_OVERRIDE
    if _libc.capset(header, struct.pack("6I", mask, mask, mask, 0, 0, 0)) == 0:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE)
    else:  # root of a container without this right: files that are open to all may be enough
        _done(_libc.capset(header, bytes(24)), "capset")


WAYS = {"same": lambda: None, "namespace": enter_namespace, "nobody": become_nobody}


def check(way: str, wanted: list[str]) -> None:
    """End with a message if ``way`` is not possible or does not open the paths; see the module."""
    try:
        WAYS[way]()
    except (OSError, KeyError) as error:
        sys.exit(getattr(error, "strerror", None) or str(error))
    for wish in wanted:
        mode, _, path = wish.partition(":")
        if not os.access(path, sum(_MODES[letter] for letter in mode)):
            sys.exit(f"{path} is out of reach")


def main(arguments: list[str]) -> None:
    if arguments[0] == "--check":
        check(arguments[1], arguments[2:])
        return
    parent, death_signal, way, *command = arguments
    WAYS[way]()
    # After the change of user: that clears it.
    _prctl(_PR_SET_PDEATHSIG, int(death_signal))
    if os.getppid() != int(parent):
        sys.exit("the supervisor is gone already")
    try:
        os.execv(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"can't start {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
