"""Requests to the kernel, by ``prctl``, about the agent's own process and the processes that it starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_PR_SET_PTRACER = 0x59616D61


def become_reaper() -> None:
    """Orphans of the user's processes become children of the agent, so that the agent keeps sight of all of them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_environment() -> None:
    """Keep other processes of the same user (the training code) from reading the token in /proc/<agent>/environ."""
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, which forked it, dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def tracing_consent() -> Callable[[], object] | None:
    """Run by a process before its exec, lets the agent and its descendants (py-spy) read it where the kernel's Yama
    asks for that; None where it does not. Call it before the fork, after which little is safe."""
    try:
        restricted = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip() == "1"
        prctl, agent = ctypes.CDLL(None).prctl, os.getpid()
    except (OSError, AttributeError):
        return None
    return (lambda: prctl(_PR_SET_PTRACER, agent, 0, 0, 0)) if restricted else None


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # Linux only; elsewhere the learner runs without
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
