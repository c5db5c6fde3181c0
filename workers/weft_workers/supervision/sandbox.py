"""A learner's own view of its machine: user, mount, process and IPC namespaces of its own, on the network of its gang
(:mod:`weft_workers.supervision.network`) or, where there is none, of the machine.

The learner's agent is process 1 in there. It sees the machine's system folders, the folders that its engine lists, and
no process but its own. It has rights over its own namespaces, with which it narrows the view of the user's program
further (``weft_trainer.machine.sealing``), and none over the machine: whatever it starts can gain none either. The
kernel does not let it reach other processes by signals or abstract sockets (Landlock, Linux 6.12), nor use the keys of
its user (seccomp).

The method is bubblewrap's: a new root on a tmpfs, bind mounts, pivot_root. The standard library only, as supervisors
run without site-packages.

    python sandbox.py     exit code 0: this machine lets this user make one; else the reason is on standard error
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

VARIABLE = "WEFT_SANDBOX"
"""In the agent's environment: the folders, separated by colons, that the user's program must not see."""

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 0x1, 0x2, 0x4, 0x8, 0x20, 0x1000, 0x4000, 0x40000
_PARENT = 0x00008000
_DETACH = 2
_AT_RECURSIVE = 0x8000
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 24, 38, 22
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_SETPCAP, _SYS_ADMIN = 8, 21
_CAPABILITY_VERSION_3 = 0x20080522

_MACHINE = os.uname().machine
_CLONE = {"x86_64": 56, "aarch64": 220}.get(_MACHINE, -1)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(_MACHINE, -1)
# The same numbers on all architectures.
_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 442, 444, 446

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sys")
# The parts of /etc with which programs find libraries, names, certificates, fonts and times. /etc also holds keys and
# passwords.
_ETC = (
    *("alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "default/locale"),
    *("environment", "fonts", "gai.conf", "group", "host.conf", "hostname", "hosts", "ibverbs.d", "inputrc"),
    *("java-11-openjdk", "java-17-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libibverbs.d", "libnl-3"),
    *("locale.alias", "locale.conf", "localtime", "machine-id", "mime.types", "networks", "nsswitch.conf", "nvidia"),
    *("OpenCL", "openmpi", "os-release", "passwd", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "profile"),
    *("profile.d", "protocols", "python3", "rdma", "resolv.conf", "rpc", "services", "ssl/cert.pem", "ssl/certs"),
    *("ssl/openssl.cnf", "terminfo", "timezone", "vulkan"),
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_GPUS = ("nvidia*", "kfd", "dri", "infiniband")
# Settings that the machine's root may change, but a learner of a server that runs as root must not.
_PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs")

_libc = ctypes.CDLL(None, use_errno=True)


class Visible(NamedTuple):
    """The folders that a learner sees besides the machine's system folders, each at its own place."""

    readable: Sequence[str]
    writable: Sequence[str]
    tmp: str
    """The folder that it sees as /tmp and /var/tmp."""
    gpus: bool = False
    """Whether it sees the machine's GPUs."""


class Shared(NamedTuple):
    """Descriptors of namespaces that the learners of a gang share."""

    user: int
    """The owner of ``net``, and the parent of the learners' own user namespaces."""
    net: int


def fork(shared: Shared | None = None) -> int:
    """As os.fork(), into namespaces of its own, in which the child is process 1. Call it from a process with one
    thread.

    Args:
        shared: namespaces that the child shares with others.

    Raises:
        OSError: the machine forbids it.
    """
    if shared is None:
        return _clone(0)
    # A process can't leave a user namespace again, so a helper enters it, and the child becomes this process's.
    read, write = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            join(shared)
            pid = _clone(_PARENT)
        except OSError as error:
            os.write(write, f"{error.errno} {error.strerror}".encode())
            os._exit(1)
        if pid == 0:
            os.close(read)
            os.close(write)
            return 0
        os.write(write, f"0 {pid}".encode())
        os._exit(0)
    os.close(write)
    with open(read, closefd=True) as said:
        number, _, what = said.read().partition(" ")
    os.waitpid(helper, 0)
    if number != "0":
        raise OSError(int(number or 5), what or "the process that enters the gang's network has died")
    return int(what)


def join(shared: Shared) -> None:
    """Move this process, which has one thread, into a gang's namespaces. Sockets that it has stay where they are.

    Raises:
        OSError: the machine forbids it.
    """
    _done(_libc.setns(ctypes.c_int(shared.user), ctypes.c_int(_NEWUSER)), "entering the gang's user namespace")
    _done(_libc.setns(ctypes.c_int(shared.net), ctypes.c_int(_NEWNET)), "entering the gang's network")


def _clone(flags: int) -> int:
    flags |= _NEWNS | _NEWIPC | _NEWUSER | _NEWPID | signal.SIGCHLD
    user, group = os.geteuid(), os.getegid()
    python = ctypes.pythonapi  # what os.fork() does around the call: the child goes on as an interpreter
    python.PyOS_BeforeFork()
    pid = int(_libc.syscall(_CLONE, ctypes.c_ulong(flags), None, None, None, None))
    number = ctypes.get_errno()
    (python.PyOS_AfterFork_Parent if pid else python.PyOS_AfterFork_Child)()
    if pid < 0:
        ctypes.set_errno(number)
        raise _error("new namespaces")
    if pid == 0:
        _keep_identity(user, group)
    return pid


def unshare_network() -> None:
    """Move this process into a network namespace, and a user namespace that owns it, of its own.

    Raises:
        OSError: the machine forbids it.
    """
    user, group = os.geteuid(), os.getegid()
    _done(_libc.unshare(ctypes.c_int(_NEWUSER | _NEWNET)), "new namespaces")
    _keep_identity(user, group)


def _keep_identity(user: int, group: int) -> None:
    """In a new user namespace: the process keeps its user and group, and has no others."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def enter(view: Visible) -> None:
    """Give the child of :func:`fork` its view, and take all other rights from it.

    Raises:
        OSError: the machine forbids a part of it.
    """
    _make_root(view)
    with suppress(OSError):  # the kernel's least tried code is that which namespaces open
        _write("/proc/sys/user/max_user_namespaces", "0")
    for name in _PROC_READ_ONLY:
        if os.path.exists(f"/proc/{name}"):
            _bind(f"/proc/{name}", f"/proc/{name}", _RDONLY)
    _keep_only(_SETPCAP, _SYS_ADMIN)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _restrict_ipc()
    _restrict_calls()


# --- the folders ---


def _make_root(view: Visible) -> None:
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", _NOSUID | _NODEV, "mode=0755")  # noqa: S108 - a place that every machine has
    os.chdir("/tmp")  # noqa: S108
    os.mkdir("new")
    os.mkdir("old")
    _pivot_root(".", "old")
    os.chdir("/")
    _mount("tmpfs", "/new", "tmpfs", _NOSUID | _NODEV, "mode=0755")
    for path in _SYSTEM:
        _system(path)
    for name in _ETC:
        _show(f"/etc/{name}", _RDONLY)
    for place in ("/tmp", "/var/tmp"):  # noqa: S108
        _show(view.tmp, 0, place)
    for path in _outermost(view.readable):
        _show(path, _RDONLY)
    for path in view.writable:
        _show(path, 0)
    for place in ("/run", "/home"):
        os.makedirs(f"/new{place}", exist_ok=True)
    os.makedirs("/new/proc")
    _mount("proc", "/new/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _make_devices(view.gpus)
    os.chdir("/new")
    _pivot_root(".", ".")
    _done(_libc.umount2(b".", _DETACH), "umount")
    os.chdir("/")
    _remount("/", _RDONLY | _NOSUID | _NODEV)


def _system(path: str) -> None:
    """A system folder, or the link that stands for it."""
    old = f"/old{path}"
    if os.path.islink(old):
        os.symlink(os.readlink(old), f"/new{path}")
    else:
        _show(path, _RDONLY)


def _show(path: str, flags: int, place: str = "") -> None:
    """Show a file or folder of the machine, with all that is mounted below it; nothing, where there is none."""
    source = _resolve(path)
    if source is None:
        return
    target = f"/new{place or path}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "x"):
            pass
    _bind(source, target, flags)


def _resolve(path: str) -> str | None:
    """The place of ``path`` below /old. Links there are meant for the root that it was."""
    for _ in range(40):
        walked = ""
        parts = path.strip("/").split("/")
        for number, part in enumerate(parts):
            step = f"{walked}/{part}"
            if os.path.islink(f"/old{step}"):
                path = os.path.normpath(os.path.join("/", walked, os.readlink(f"/old{step}"), *parts[number + 1 :]))
                break
            walked = step
        else:
            return f"/old{walked}" if os.path.exists(f"/old{walked}") else None
    return None


def _outermost(paths: Iterable[str]) -> list[str]:
    """Without those that lie in another of them, or in a system folder."""
    kept: list[str] = list(_SYSTEM)
    for path in sorted(set(paths)):
        if not any(path == other or path.startswith(f"{other}/") for other in kept):
            kept.append(path)
    return kept[len(_SYSTEM) :]


def _make_devices(gpus: bool) -> None:
    os.mkdir("/new/dev")
    _mount("tmpfs", "/new/dev", "tmpfs", _NOSUID | _NOEXEC, "mode=0755")
    names = list(_DEVICES)
    if gpus:
        names += [path.name for pattern in _GPUS for path in Path("/old/dev").glob(pattern)]
    for name in names:
        _show(f"/dev/{name}", 0)
    for name, target in (("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1"), ("stderr", "self/fd/2")):
        os.symlink(f"/proc/{target}", f"/new/dev/{name}")
    os.mkdir("/new/dev/pts")
    _mount("devpts", "/new/dev/pts", "devpts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    os.symlink("pts/ptmx", "/new/dev/ptmx")
    os.mkdir("/new/dev/shm")
    _mount("tmpfs", "/new/dev/shm", "tmpfs", _NOSUID | _NODEV, "mode=1777")
    _remount("/new/dev", _RDONLY | _NOSUID | _NOEXEC)


# --- rights ---


def _keep_only(*capabilities: int) -> None:
    """Give all other rights up, and keep these across the exec that follows, for any user."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for number in range(last + 1):
        if number not in capabilities:
            _prctl(_PR_CAPBSET_DROP, number)
    mask = sum(1 << number for number in capabilities)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _done(_libc.capset(header, struct.pack("6I", mask, mask, mask, 0, 0, 0)), "capset")
    for number in capabilities:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number)


def _restrict_ipc() -> None:
    """No abstract Unix sockets of other processes, which are a matter of the network and not of folders."""
    version = int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1)))
    if version < 6:  # the kernel is older, or was built without
        return
    sockets_and_signals = struct.pack("QQQ", 0, 0, 0b11)
    rules = int(_libc.syscall(_LANDLOCK_CREATE, sockets_and_signals, ctypes.c_size_t(24), ctypes.c_uint(0)))
    if rules < 0:
        raise _error("Landlock")
    _done(_libc.syscall(_LANDLOCK_RESTRICT, ctypes.c_int(rules), ctypes.c_uint(0)), "Landlock")
    os.close(rules)


# Calls that go around namespaces (the keys of a user, kernel modules, files by handle), and large parts of the kernel
# that training does not use: add_key, request_key, keyctl, bpf, userfaultfd, open_by_handle_at, kexec_load,
# kexec_file_load, init_module, finit_module, delete_module.
_FORBIDDEN = {
    "x86_64": (248, 249, 250, 321, 323, 304, 246, 320, 175, 313, 176),
    "aarch64": (217, 218, 219, 280, 282, 265, 104, 294, 105, 273, 106),
}
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000


def _restrict_calls() -> None:
    """A seccomp filter (man 2 seccomp): the forbidden calls fail with EPERM, and so do all of 32-bit programs."""
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | 1
    calls = _FORBIDDEN[_MACHINE]
    lines = [
        (load, 0, 0, 4),  # the architecture
        (equal, 1, 0, _AUDIT[_MACHINE]),
        (end, 0, 0, refuse),
        (load, 0, 0, 0),  # the call's number
        (at_least, len(calls) + 1, 0, _X32),
        *((equal, len(calls) - at, 0, number) for at, number in enumerate(calls)),
        (end, 0, 0, allow),
        (end, 0, 0, refuse),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
    _done(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), program, 0, 0), "seccomp")


# --- the kernel ---


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def _done(result: int, what: str) -> None:
    if result != 0:
        raise _error(what)


def _prctl(option: int, *arguments: int) -> None:
    padded = [*arguments, 0, 0, 0, 0][:4]
    _done(_libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(argument) for argument in padded)), f"prctl({option})")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind and kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _done(result, f"mount on {target}")


def _remount(target: str, flags: int) -> None:
    _mount("none", target, None, _REMOUNT | _BIND | flags)


def _bind(source: str, target: str, flags: int) -> None:
    """``flags``, and no set-user-ID programs, hold for all that is mounted below, too."""
    _mount(source, target, None, _BIND | _REC)
    devices = stat.S_ISCHR(os.stat(target).st_mode) or source.startswith("/old/dev/")
    attributes = struct.pack("QQQQ", flags | _NOSUID | (0 if devices else _NODEV), 0, 0, 0)
    result = _libc.syscall(
        *(_MOUNT_SETATTR, ctypes.c_int(-100), os.fsencode(target), ctypes.c_uint(_AT_RECURSIVE)),
        *(attributes, ctypes.c_size_t(len(attributes))),
    )
    _done(result, f"mount_setattr (Linux 5.12) of {target}")


def _pivot_root(new: str, old: str) -> None:
    _done(_libc.syscall(_PIVOT_ROOT, new.encode(), old.encode()), "pivot_root")


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def main(shared: Shared | None = None) -> None:
    """Make one for a moment, and end."""
    if _CLONE < 0:
        sys.exit(f"the architecture {_MACHINE} is not known")
    import tempfile  # no supervisor needs it

    with tempfile.TemporaryDirectory() as folder:
        try:
            if (pid := fork(shared)) == 0:
                enter(Visible([], [folder], folder))
                os._exit(0)
        except OSError as error:
            os.write(2, f"{error.strerror}\n".encode())
            os._exit(1)
        _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
