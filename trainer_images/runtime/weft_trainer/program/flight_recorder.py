"""Reads the answers of the program's processes about PyTorch's flight recorder, and Horovod's count (see
``program.collectives``)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft_trainer.program.questions import answer

_MOST_BYTES = 8 * 2**20
_NEWEST = 8
"""Collectives of each group that the agent reports; and as many of those that are in flight."""
_MOST_GROUPS = 12
_MOST_RANKS = 1024
_MOST_TENSORS = 256
_MOST_NAME = 120


def answers(folder: Path, asked: set[int], seconds: float) -> dict[int, dict[str, Any]]:
    """By process: ``rank``, ``groups`` and ``collectives`` of a report, or ``finished`` and ``submitted``. Waits at
    most so long for those that are late."""
    found = {pid: _report(text) for pid, text in _texts(folder, asked, seconds).items()}
    return {pid: report for pid, report in found.items() if report}


def entered(folder: Path, asked: set[int], seconds: float) -> dict[int, str]:
    """By process, the collectives that it has entered, as far back as its recorder goes: a line each, with the group,
    the number, the operation, and the time in ns by the clock of its machine. Waits as :func:`answers`."""
    found = {pid: "".join(_lines(text)) for pid, text in _texts(folder, asked, seconds).items()}
    return {pid: lines for pid, lines in found.items() if lines}


def _texts(folder: Path, asked: set[int], seconds: float) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    end = time.monotonic() + seconds
    while True:
        for pid in asked - found.keys():
            text = answer(folder, pid, _MOST_BYTES)
            if text is not None:
                found[pid] = text
        if asked <= found.keys() or time.monotonic() > end:
            return found
        time.sleep(0.05)


def _lines(text: bytes) -> Iterator[str]:
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        for entry in json.loads(text.partition(b"\n")[2] or "{}").get("entries", ()):
            group, operation = str(entry["process_group"][0]), str(entry["profiling_name"]).rpartition(":")[2]
            if not entry.get("is_p2p"):
                at = int(entry["time_created_ns"])
                yield f"{_word(group)} {int(entry['collective_seq_id'])} {_word(operation)} {at}\n"


def _word(text: str) -> str:
    """The program can give a group any name."""
    return re.sub(r"[^\w.:/-]", "_", text)[:_MOST_NAME] or "_"


def _report(text: bytes) -> dict[str, Any]:
    try:
        head, _, trace = text.partition(b"\n")
        about = json.loads(head)
        if not trace:
            names = about.get("submitted")
            submitted = None if names is None else [str(name)[:_MOST_NAME] for name in names[:_MOST_TENSORS]]
            return {"finished": int(about["finished"]), "submitted": submitted}
        entries = json.loads(trace)["entries"]
        groups = {str(name): list(map(int, ranks)) for name, ranks in about["groups"].items() if ranks}
        return {
            "rank": about["rank"],
            "groups": {name: ranks for name, ranks in groups.items() if len(ranks) <= _MOST_RANKS},
            "collectives": list(_chosen(entries)),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _chosen(entries: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if not entry.get("is_p2p"):  # their numbers are of the pair of ranks
            groups.setdefault(str(entry["process_group"][0]), []).append(_collective(entry))
    for some in list(groups.values())[:_MOST_GROUPS]:
        newest = some[-_NEWEST:]
        flying = [collective for collective in some[:-_NEWEST] if not collective["done"]]
        yield from flying[:_NEWEST]
        yield from newest


def _collective(entry: Mapping[str, Any]) -> dict[str, Any]:
    sizes = " ".join(str(size).replace(" ", "") for size in entry.get("input_sizes", []))
    kinds = " ".join(dict.fromkeys(entry.get("input_dtypes", [])))
    return {
        "group": str(entry["process_group"][0]),
        "number": int(entry["collective_seq_id"]),
        "operation": str(entry["profiling_name"]).rpartition(":")[2],
        "shapes": f"{sizes} {kinds}".strip()[:200],
        "done": bool(entry.get("retired")) or entry.get("state") == "completed",
    }
