"""Sizes, durations, counts and exit codes in words.

A learner has no package of Weft's but this one, so these functions are a copy of those in ``weft_core.words``. The test
``tests/core/test_words.py`` compares the two, so that the agent and the service use the same words.
"""

from __future__ import annotations

import signal


def size(number: float) -> str:
    """A number of bytes: ``512 MiB``, ``1.5 GiB``."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(number) >= factor:
            return f"{number / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{number:.0f} bytes"


def duration(seconds: float) -> str:
    """``90`` → ``1m30s``, ``3600`` → ``1h``."""
    whole = round(seconds)
    parts = [(whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s")]
    return "".join(f"{count}{unit}" for count, unit in parts if count) or f"{seconds:g}s"


def count(number: float, noun: str) -> str:
    """A number of things: ``1 learner``, ``2 GPUs``, ``1,024 files``."""
    return f"{number:,.10g} {noun}" + ("" if number == 1 else "s")


def describe_exit(code: int) -> str:
    """The exit code of a process; negative: the signal that killed it.

    ``exit code 3``, ``killed by signal 9 (SIGKILL)``.
    """
    if code >= 0:
        return f"exit code {code}"
    name = signal_name(-code)
    return f"killed by signal {-code} ({name})" if name else f"killed by signal {-code}"


def signal_name(number: int) -> str:
    """``SIGKILL``; empty: there is no signal with this number, or it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
