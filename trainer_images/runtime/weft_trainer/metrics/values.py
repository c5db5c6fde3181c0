"""FfDL's typed values."""

from __future__ import annotations

import json
from typing import Any

from weft_trainer.metrics.records import Value


def convert(value: Any, kind: str) -> Value | None:
    """``value`` as the type INT, FLOAT, STRING or JSONSTRING says; None, when it is none of that type."""
    if kind not in ("INT", "FLOAT"):
        return value if isinstance(value, str) else json.dumps(value)
    text = str(value).strip()
    if kind == "INT":
        for base in (10, 0, 8, 16):  # 12, 0x1f, 017, ff
            try:
                return int(text, base)
            except ValueError:
                continue
    try:
        return float(text)
    except ValueError:
        return None
