"""The ending of a learner, in an exit code and words."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from weft_trainer.program.hints import EXCEPTION, find_hint
from weft_trainer.words import describe_exit, signal_name

STOPPED_CODE = 143  # a shell's code for SIGTERM
NOT_RUN = (126, 127)  # a shell's codes for a command that is not executable, or not there

_LESS_GPU_MEMORY = "a smaller batch, mixed precision or gradient checkpointing needs less, and a larger GPU has more"
_CAUSE = "The above exception was the direct cause of the following exception"
_GPU_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU) out of memory\.?"  # PyTorch's allocator
    r"|(?:CUDA|HIP) error: out of memory"  # the driver, by PyTorch
    r"|(?:CUDA|HIP)_ERROR_OUT_OF_MEMORY|[cC]uda(?:ErrorMemoryAllocation| failure 2)|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED"
    r"|(?i:OOM when allocating tensor\b.*\bdevice:GPU:\d+)"  # TensorFlow
    r"|RESOURCE_EXHAUSTED: Out of memory while trying to allocate"  # JAX; on a CPU it words that otherwise
    r"|\bcupy\.\S+OutOfMemoryError: "
)
_AMOUNTS = re.compile(r"Tried to allocate [\d.]+ \w+(?:\. GPU \d+ has a total capaci?ty of .*? is free)?")
"""The part of the message that says how much was requested and how much there is."""


class Ending(NamedTuple):
    exit_code: int
    reason: str
    killed_at: float | None = None
    """When a process was killed by a signal (seconds since the epoch), perhaps while it wrote a file."""
    cut_off: bool = False
    """Whether a stop ended a process that does not handle SIGTERM, perhaps while it wrote a file."""


SUCCESS = Ending(0, "")
REGROUPED = Ending(0, "regrouped")
"""Workers were ended for a new round of an elastic job; the learner itself goes on."""
STOPPED = Ending(STOPPED_CODE, "stopped")


def describe(
    code: int, command: str, last_lines: Sequence[str], memory: str = "", folder: Path | None = None
) -> Ending:
    """The ending for a process's exit ``code``; negative: killed by that signal. ``memory``: what the kernel's counts
    say about a SIGKILL (``oom.since``). ``folder``: of the user's code."""
    if code == 0:
        return SUCCESS
    if code < 0:
        why = f", {memory}" if memory and -code == signal.SIGKILL else ""
        return Ending(128 - code, f"{describe_exit(code)}{why}")
    if code == 127:
        return Ending(code, f"command not found: {_culprit(command, last_lines)}")
    if code == 126:
        return Ending(code, f"command not executable: {_culprit(command, last_lines)}")
    if code < 128 and (hint := gpu_memory(last_lines)):
        return Ending(code, f"the GPU ran out of memory ({describe_exit(code)}): {hint}")
    if code < 128 and (hint := find_hint(last_lines, folder)):
        return Ending(code, f"{describe_exit(code)}; {hint}")
    name = signal_name(code - 128) if code > 128 else ""
    if name:
        # A shell's code for the signal that ended the program that it ran.
        why = f", {memory}" if memory and name == "SIGKILL" else ""
        return Ending(code, f"{describe_exit(code)} (signal {code - 128}, {name}{why})")
    return Ending(code, describe_exit(code))


def gpu_memory(last_lines: Sequence[str]) -> str:
    """A hint for a program that ended as its GPU had no memory left, by the exception that ended it; else empty.

    An exception that the program has caught and printed decides nothing. Only the last exception does, with its causes.
    """
    ends = [at for at, line in enumerate(last_lines) if EXCEPTION.match(line)]
    after = len(last_lines)
    for at in reversed(ends):
        if after < len(last_lines) and not any(_CAUSE in line for line in last_lines[at:after]):
            break  # another exception, of before
        message = "\n".join(last_lines[at:after])
        if _GPU_MEMORY.search(message):
            amounts = _AMOUNTS.search(message)
            return f"{amounts[0]}; {_LESS_GPU_MEMORY}" if amounts else _LESS_GPU_MEMORY
        after = at
    return ""


def was_killed(code: int) -> bool:
    """Whether a process's exit code (or its shell's code for it) says that a signal ended it without its consent.
    Not 143 or 130: programs that end well after SIGTERM or SIGINT exit with these."""
    by_choice = (128 + signal.SIGTERM, 128 + signal.SIGINT)
    return code < 0 or bool(code > 128 and code not in by_choice and signal_name(code - 128))


def _culprit(command: str, last_lines: Sequence[str]) -> str:
    """Which word of the command it was, by bash's own complaint."""
    for line in reversed(last_lines):
        found = re.search(
            r"bash: (?:line \d+: )?(.+?): (?:command not found|No such file|Permission denied|.*cannot execute)", line
        )
        if found:
            return found[1]
    return (command.split() or ["(empty)"])[0]
