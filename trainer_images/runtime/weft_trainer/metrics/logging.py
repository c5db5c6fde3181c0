"""``log_metrics``: for training code. Standard library only; a call costs microseconds."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

FILE_VARIABLE = "WEFT_METRICS_FILE"
_told = False


def log_metrics(
    metrics: Mapping[str, Any] | None = None,
    /,
    *,
    step: int | None = None,
    epoch: float | None = None,
    group: str = "",
    **values: Any,
) -> None:
    """Report numbers of the training; they show at once in ``weft metrics``, on the job's page and in lists.

        log_metrics(loss=0.31, accuracy=0.9, step=1200, group="train")
        log_metrics({"val/loss": 0.4, "f1.macro": 0.8}, epoch=3)

    From any rank, process and thread. Outside of a Weft learner it does nothing. A full disk is reported once, and
    does not stop the training.

    Args:
        metrics: names and numbers, for names that are no Python identifiers.
        step: the x value of the curves.
        epoch: likewise, where steps are not counted.
        group: the name of the group that these numbers belong to, such as ``train`` or ``validation``.
        values: names and numbers: Python's, NumPy's, a tensor with one element. NaN and infinity are kept.

    Raises:
        TypeError: a value is no number.
    """
    path = os.environ.get(FILE_VARIABLE)
    numbers = {str(name): _number(name, value) for name, value in {**(metrics or {}), **values}.items()}
    if not path or not numbers:
        return
    record: dict[str, Any] = {"t": int(time.time() * 1000), "v": numbers}
    if group:
        record["g"] = str(group)
    if step is not None:
        record["i"] = int(step)
    if epoch is not None:
        record["e"] = _number("epoch", epoch)
    line = json.dumps(record).encode() + b"\n"
    try:
        # One write to a file that is only ever appended to: lines of several processes do not mix, and a line outlives
        # a process that is killed a moment later. Opened anew, as the agent puts another file in its place.
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError as error:
        _tell(f"weft: metrics can't be logged: {error}")


def _number(name: object, value: Any) -> float:
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        kind = type(value).__name__
        raise TypeError(f"log_metrics: {name!s} is no number but of type {kind}: {_short(value)}") from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _tell(words: str) -> None:
    global _told
    if not _told:
        _told = True
        print(words, file=sys.stderr, flush=True)
