"""Processes as the kernel shows them in /proc: their identities, their descendants, and how to end them all.

The standard library only: supervisors import it, which run without site-packages. Two programs have their own copy of a
few lines, as they run where Weft is not: the agent (weft_trainer.machine.prctl, weft_trainer.ray_gang.guard), and the
guard of `weft up`'s servers, which is started by its path.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


_M_ARENA_MAX = -8


def few_arenas() -> None:
    """Let the threads of this process share two of the C library's arenas.

    By default each thread may get one of its own, and what it has freed there serves no other thread. The interpreter's
    lock lets one thread allocate at a time anyway. Other C libraries than glibc have no such setting.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def many_files() -> None:
    """Let this process have as many open files, and so connections, as the kernel permits it. Most shells and services
    start programs with 1,024, and it is for the program to ask for more."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def collect_again() -> None:
    """Turn the garbage collector on, for all that is made from now on.

    A process that turns it off for its imports starts a fifth sooner. Less than 1 % of what they make is garbage, and
    no collection looks at the rest again.

    Collections are rarer than Python's defaults make them. These look for garbage whenever 700 more objects exist, and
    through all objects whenever 70,000 more do. An API with a thousand requests under way spent a quarter of its time
    on that, and stopped for 0.3 s at a time. Reference counts free nearly everything without a collection. The second
    of the three generations is small, because a process stops while 50,000 objects of it are looked through: for
    0.1 s and more.
    """
    gc.freeze()
    gc.set_threshold(5_000, 2, 250)
    gc.enable()


def return_memory() -> None:
    """Give the kernel what the start has used for a while only: the text of botocore's descriptions of services takes
    megabytes. glibc keeps it otherwise."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Identity(NamedTuple):
    """A process, unmistakably: a pid alone is used again, after a reboot at the latest."""

    pid: int
    start: int  # field 22 of /proc/<pid>/stat: clock ticks since boot
    boot: str


@lru_cache(maxsize=1)
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def machine_life() -> str:
    """A value that changes when this machine, or this process's container, starts anew: no process outlives that."""
    first = _stat(1)
    return f"{boot_id()} {first[1] if first else ''}"


def identity(pid: int) -> Identity | None:
    """The process that has ``pid`` now; None: there is none."""
    found = _stat(pid)
    return Identity(pid, found[1], boot_id()) if found else None


def parse_identity(value: object) -> Identity | None:
    """An identity as JSON keeps it; None for anything else."""
    match value:
        case [int(pid), int(start), str(boot)]:
            return Identity(pid, start, boot)
    return None


def send(who: Identity, number: signal.Signals) -> bool:
    """Send a signal to ``who``, and never to a later process with its pid; returns whether the process was there."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    try:
        # The handle pins the process, so the process that the second check finds gets the signal.
        if identity(who.pid) != who:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process ``number`` when ``parent``, which forked it, dies."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() not in (parent, 0):  # it died before the line above; 0: it is outside of this process's namespace
        os.kill(os.getpid(), number)


def name_process(name: str) -> None:
    """Name this process for `ps` and `top`, where the kernel lets it."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def give_rights_up() -> None:
    """Have nothing that this process starts gain rights: set-user-ID programs have no effect."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def adopt_orphans(adopts: bool = True) -> None:
    """Become the parent of every descendant whose own parent ends: no process can escape by daemonising itself. Or do
    so no longer, which changes nothing for those adopted so far."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopts))


def reap() -> dict[int, int]:
    """The wait status of each child that has ended since the last call, by pid."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def descendants(root: int, spare: Collection[int] = ()) -> list[Identity]:
    """All processes below ``root``; those in ``spare``, and what is below them, are left out."""
    children: dict[int, list[Identity]] = {}
    for pid in _pids():
        if found := _stat(pid):
            children.setdefault(found[0], []).append(Identity(pid, found[1], boot_id()))
    below: list[Identity] = []
    parents = [root]
    while parents:
        new = [child for child in children.get(parents.pop(), ()) if child.pid not in spare]
        below += new
        parents += [child.pid for child in new]
    return below


def end_descendants(spare: Collection[int] = (), others: Callable[[], Iterable[int]] = tuple) -> dict[int, int]:
    """SIGKILL everything below this process, and the pids that ``others`` finds, until none is left.

    For a process that adopts orphans. Returns the wait statuses of its own children that ended meanwhile.
    """
    ended: dict[int, int] = {}
    pause = 0.001
    while True:
        ended |= reap()
        left = descendants(os.getpid(), spare)
        left += [who for pid in others() if (who := identity(pid)) and who not in left]
        if not left:
            return ended
        for who in left:
            send(who, signal.SIGKILL)
        time.sleep(pause)  # a process in an uninterruptible call takes its time, and still holds its memory and GPU
        pause = min(pause * 2, 0.2)


def with_environment(entry: str) -> list[Identity]:
    """The processes that were started with ``entry`` (``NAME=value``) in their environment."""
    found = (identity(pid) for pid in _pids() if _has_environment(pid, entry))
    return [who for who in found if who]


def of_session(session: int, entry: str) -> list[Identity]:
    """The processes of a session that were started with ``entry`` in their environment."""
    found = (identity(pid) for pid in _pids() if _session(pid) == session and _has_environment(pid, entry))
    return [who for who in found if who]


def end_with_environment(entry: str, others: Callable[[], Iterable[int]] = tuple) -> None:
    """SIGKILL what :func:`with_environment` and ``others`` find, until nothing is left: for no ancestor of theirs."""
    for _ in range(200):
        left = with_environment(entry)
        left += [who for pid in others() if (who := identity(pid)) and who not in left]
        left = [who for who in left if not is_zombie(who.pid)]
        if not left:
            return
        for who in left:
            send(who, signal.SIGKILL)
        time.sleep(0.01)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _session(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def _has_environment(pid: int, entry: str) -> bool:
    try:
        environment = _read(f"/proc/{pid}/environ")
    except OSError:  # gone, or another user's
        return False
    wanted = entry.encode()
    return wanted in environment and wanted in environment.split(b"\0")


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and start time."""
    fields = _fields(pid)
    return (int(fields[1]), int(fields[19])) if fields else None


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process and of the children that it has waited for; 0 if there is none."""
    fields = _fields(pid)
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and its parent has not asked how; also when there is none."""
    fields = _fields(pid)
    return fields is None or fields[0] == b"Z"


def _fields(pid: int) -> list[bytes] | None:
    """/proc/<pid>/stat from its third field (state) on; the second, the name, may hold spaces and brackets."""
    try:
        line = _read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return line[line.rindex(b")") + 2 :].split()


def _read(path: str) -> bytes:
    """The content of a file. These are read by the hundred, and a Path takes longer than the kernel."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()
