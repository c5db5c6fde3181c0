"""``forbid_namespaces.py PROGRAM [ARGUMENT…]``: runs it as Docker does by default, where user namespaces are forbidden.

As there, the kernel's system call filter refuses ``unshare`` and ``clone``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_UNSHARE, _CLONE = {"x86_64": (272, 56), "aarch64": (97, 220)}[platform.machine()]
_NEW_USER = 0x10000000
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000

_PROGRAM = [
    (_LOAD, 0, 0, 0),  # the number of the call
    (_IF_EQUAL, 1, 0, _UNSHARE),
    (_IF_EQUAL, 0, 3, _CLONE),
    (_LOAD, 0, 0, 16),  # its first argument
    (_IF_ANY_BIT, 0, 1, _NEW_USER),
    (_RETURN, 0, 0, _ERROR | errno.EPERM),
    (_RETURN, 0, 0, _ALLOW),
]


def main(command: list[str]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _PROGRAM))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(_PROGRAM), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(head), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
