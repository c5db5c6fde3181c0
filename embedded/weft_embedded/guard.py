"""Ties a process to its supervisor, then becomes it: ``guard.py PARENT SIGNAL keep|drop PROGRAM [ARGUMENT…]``.

Run as a script by a bare interpreter (``python -I -S``, ~15 ms), because what it does must happen between fork and
exec, and Python's ``preexec_fn`` is unsafe beside threads. It imports the standard library only.

- When the parent dies, by whatever means, the kernel sends SIGNAL to this process (``PR_SET_PDEATHSIG``).
- ``drop``: PostgreSQL refuses to run as root, so root becomes `nobody`, but keeps the right to pass folders that only
  root may enter. No system user has to be made and no folder of the user's opened for that.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import struct
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
UNPRIVILEGED = "nobody"

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, *arguments: int) -> None:
    padded = [*arguments, 0, 0, 0, 0][:4]
    if _libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(one) for one in padded)) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}): {os.strerror(ctypes.get_errno())}")


def drop_root() -> None:
    """Become `nobody`, keeping CAP_DAC_OVERRIDE across the exec that follows."""
    user = pwd.getpwnam(UNPRIVILEGED)
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    mask = 1 << _CAP_DAC_OVERRIDE
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, struct.pack("6I", mask, mask, mask, 0, 0, 0)) != 0:
        raise OSError(ctypes.get_errno(), f"capset: {os.strerror(ctypes.get_errno())}")
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE)


def main(arguments: list[str]) -> None:
    parent, death_signal, root, *command = arguments
    if root == "drop":
        drop_root()
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
