"""FfDL's typed values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from weft_trainer.metrics.records import Value


def convert(value: Any, kind: str) -> Value | None:
    """``value`` in the type INT, FLOAT, STRING or JSONSTRING; None: it can't be of that type."""
    if kind not in _READINGS:
        return value if isinstance(value, str) else json.dumps(value)
    text = str(value).strip()
    for read in _READINGS[kind]:
        try:
            return read(text)
        except ValueError:
            continue
    return None


def _prefixed(text: str) -> int:
    return int(text, 0)


def _hexadecimal(text: str) -> int:
    return int(text, 16)


def types_of_texts(kinds: Mapping[str, str]) -> dict[str, str]:
    """Those of FfDL's types, by name, that are types of texts: a text itself does not show which of the two it has."""
    return {name: kind for name, kind in kinds.items() if kind in ("STRING", "JSONSTRING")}


_READINGS: dict[str, list[Callable[[str], Value]]] = {
    "FLOAT": [float],
    "INT": [int, _prefixed, float, _hexadecimal],  # 12, 0x1f, 1e3, ff
}
