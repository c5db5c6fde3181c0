"""Sizes and counts in words.

The client may not import ``weft_core``, so these functions are a copy of those in ``weft_core.words``. The test
``tests/core/test_words.py`` compares the two, so that the client and the service use the same words.
"""

from __future__ import annotations


def size(number: float) -> str:
    """A number of bytes: ``512 MiB``, ``1.5 GiB``."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(number) >= factor:
            return f"{number / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{number:.0f} bytes"


def count(number: float, noun: str) -> str:
    """A number of things: ``1 learner``, ``2 GPUs``, ``1,024 files``."""
    return f"{number:,.10g} {noun}" + ("" if number == 1 else "s")
