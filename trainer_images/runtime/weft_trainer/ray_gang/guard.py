"""The process between a Ray actor and its learner's agent. It outlives the actor by a moment: when the actor ends for
any reason (a kill, the loss of its raylet or of its driver), the guard ends the agent and all of the agent's
descendants.

Standard library only: it runs as ``python -I -S guard.py``, before any environment of a user's. It detaches from the
actor because Ray kills the children of a worker that it ends. Its orders come through stdin, one JSON object per line:
first the ``plan`` of :func:`supervise`, then any number of ``{"stop": GRACE}``. The end of stdin means that the actor
is gone. The guard's reports go to stdout, one JSON object per line.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
_CHECK = 5.0  # seconds after which it checks everything even if nothing happened
_LEFTOVER_SECONDS = 10.0
_TAIL = 2000  # characters of the agent's own output that go with a failure's report


def supervise(plan: dict[str, Any], orders: int) -> None:
    """Run the agent to its end.

    Args:
        plan: ``argv``, ``env`` and ``work``, the learner's folder, which is made and, at the end, removed.
        orders: the descriptor that orders come from.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    work, kills = plan["work"], machine_oom_kills()
    lock = _make_folder(work)
    log = os.path.join(work, "agent.log")

    def prepare_agent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_DFL)

    def start_agent(more: dict[str, str]) -> subprocess.Popen[bytes]:
        with open(log, "ab") as output:
            return subprocess.Popen(
                plan["argv"],
                env={**plan["env"], **more},
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepare_agent,
            )

    try:
        agent = start_agent({})
    except OSError as error:
        report({"failed": f"{plan['argv'][0]} does not run: {error.strerror or error}"})
    else:
        report({"started": agent.pid})
        status, killed = _wait(agent.pid, orders)
        end_descendants()
        oom = status == -signal.SIGKILL and not killed and machine_oom_kills() > kills
        tail = _tail(log) if status else ""
        if status == -signal.SIGKILL and os.path.exists(os.path.join(work, "agent", "spool", "cursor.json")):
            # Another agent sends the rest of the log. It has a time limit because the attempt waits for it.
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                start_agent({"WEFT_LEFTOVERS": "1"}).wait(_LEFTOVER_SECONDS)
            end_descendants()
        report({"exit_code": status, "killed": killed, "oom": oom, "tail": tail})
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


def _wait(agent: int, orders: int) -> tuple[int, str]:
    """Wait until the agent has ended. Returns its exit code (negative: signal), and why the guard killed it, if it
    did."""
    wakeup, bell = os.pipe()
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    buffer, deadline, killed = b"", None, ""
    while True:
        if (status := _reap(agent)) is not None:
            return status, killed
        now = time.monotonic()
        if deadline is not None and now >= deadline and not killed:
            killed = "the grace was over"
            os.kill(agent, signal.SIGKILL)
        pause = _CHECK if deadline is None or killed else min(_CHECK, deadline - now)
        ready, _, _ = select.select([wakeup, *([orders] if orders >= 0 else [])], [], [], pause)
        if wakeup in ready:
            os.read(wakeup, 1024)
        if orders in ready:
            data = os.read(orders, 65536)
            if not data:  # the actor is gone
                orders, killed = -1, killed or "its Ray actor was gone"
                os.kill(agent, signal.SIGKILL)
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                end = time.monotonic() + json.loads(line)["stop"]
                if deadline is None:
                    os.kill(agent, signal.SIGTERM)
                deadline = end if deadline is None else min(deadline, end)


def _reap(agent: int) -> int | None:
    """Reap dead children. Returns the agent's exit code, if the agent is among them."""
    with contextlib.suppress(ChildProcessError):
        # Reap the agent only now: as long as it was not reaped, no other process can get its pid.
        found = os.waitid(os.P_PID, agent, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None:
            return os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1])
        for pid in children():
            if pid != agent:
                os.waitpid(pid, os.WNOHANG)
    return None


def end_descendants() -> None:
    """Kill the processes that the agent has left behind. Orphans of killed processes become the guard's children, so
    this repeats until there are none."""
    while left := children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def children() -> list[int]:
    me, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == me:
                    found.append(int(name))
    return found


def machine_oom_kills() -> int:
    """How many processes the kernel has killed for memory since it booted."""
    with contextlib.suppress(OSError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _make_folder(work: str) -> int:
    """Make the learner's folder. Returns the lock that shows that the folder is in use."""
    os.makedirs(work, mode=0o700)
    lock = os.open(os.path.join(work, ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _tail(log: str) -> str:
    with contextlib.suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - _TAIL))
        return file.read().decode(errors="replace").strip()
    return ""


def report(what: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the actor does not read any more
        os.write(1, json.dumps(what).encode() + b"\n")


def main() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Ray's workers block some
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 1)  # byte by byte: orders may follow
        if not data:
            return
        line += data
    supervise(json.loads(line), 0)


if __name__ == "__main__":
    main()
    sys.exit(0)
