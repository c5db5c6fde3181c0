"""Sizes, durations, counts and exit codes in words: the one place for them in the service.

The client and the agent may not import this package. Each has a copy of the functions that it needs, ``weft.words`` and
``weft_trainer.words``. ``tests/core/test_words.py`` compares the copies with these functions.
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
    try:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"killed by signal {-code}"
