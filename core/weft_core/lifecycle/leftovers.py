"""The files that a program has left in the job's folder, in words for the job's events.

An agent reports them with its exit: numbers, bytes and the largest of the files that are stored because the manifest's
``results`` names them (``named``), that are kept without that (``kept``), and that are not stored (``lost``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft_core.words import count, size


def leftover_events(learner: int, report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The kind and the message of each event that a learner's report makes. ``learner`` is from 1."""
    who = f"learner {learner}: "
    events = []
    if report["named"]["files"]:
        events.append(("learner", f"{who}stored {_files(report['named'])}, as results: names them"))
    line = f"; to store them in their own places, add to the manifest: {report['line']}" if report["line"] else ""
    if report["kept"]["files"]:
        what = f"kept {_files(report['kept'])} that the program left in its folder, below {report['place']}"
        events.append(("learner", who + what + line))
    for lost in report["lost"]:
        what = f"not kept: {_files(lost)}, as {lost['reason']}" if lost["files"] else f"not kept: {lost['reason']}"
        events.append(("warning", who + what + line))
    if report.get("unmatched"):
        events.append(("warning", f"{who}no file matches these patterns of results: {', '.join(report['unmatched'])}"))
    return events


def _files(part: Mapping[str, Any]) -> str:
    """'12 files (3.4 MiB: runs/ 3 MiB, model.pt 400 KiB)'."""
    named = [f"{entry['path']} {size(entry['bytes'])}" for entry in part["listed"]]
    rest = part["files"] - sum(entry["files"] for entry in part["listed"])
    more = [f"and {count(rest, 'more file')}"] if rest > 0 else []
    return f"{count(part['files'], 'file')} ({size(part['bytes'])}: {', '.join(named + more)})"
