"""What a trace of Chromium says: when a page was ready for its user, and how many frames it drew while it scrolled.

The times of a trace are microseconds of the monotonic clock, which is also that of `time.monotonic`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from benchmarks.page.browser import Stuck, Trace

CONTENT = "weft-content"
"""The mark that the page sets in the first frame after what was asked for came into the document."""
LONG = 50.0
"""Milliseconds of a task, from which on it keeps the user waiting."""
QUIET = 1.0
"""Seconds without a long task, after which the page counts as ready."""


@dataclass(frozen=True)
class Load:
    """Milliseconds from the start of the navigation."""

    content: float
    interactive: float
    longest: float
    """The longest task of the main thread."""
    processor: float
    """What the main thread took of a processor until it was ready: other programs of the machine add little to it."""
    quiet: bool
    """It became ready before the trace ended."""


@dataclass(frozen=True)
class Scroll:
    frames: float
    """Frames/s that the page's compositor drew."""
    main: float
    """Frames/s for which the main thread had done its part."""
    gap: float
    """The longest time between two frames, in ms."""
    longest: float
    """The longest task of the main thread, in ms."""
    processor: float
    """The share of the time in which the main thread had a processor."""


def read_load(trace: Trace, url: str) -> Load:
    marks = [event for event in trace if event["name"] == CONTENT and "blink.user_timing" in event["cat"]]
    if not marks:
        raise Stuck(f"the trace has no mark {CONTENT} of {url}")
    content = marks[-1]
    starts = [
        event["ts"]
        for event in trace
        if event["name"] == "navigationStart"
        and event["pid"] == content["pid"]
        and event.get("args", {}).get("data", {}).get("documentLoaderURL") == url
    ]
    if not starts:
        raise Stuck(f"the trace has no navigation to {url}")
    start = max(starts)
    tasks = [task for task in _tasks(trace, content) if task.end > start]
    ready = content["ts"]
    for task in tasks:
        if task.end - task.begin >= LONG * 1000 and task.begin < ready + QUIET * 1e6:
            ready = max(ready, task.end)
    last = max((event["ts"] for event in trace if event["pid"] == content["pid"]), default=0)
    until = [task for task in tasks if task.begin < ready]
    longest = max((task.end - max(task.begin, start) for task in until), default=0)
    processor = sum(task.processor for task in until)
    quiet = last >= ready + QUIET * 1e6
    return Load((content["ts"] - start) / 1000, (ready - start) / 1000, longest / 1000, processor / 1000, quiet)


def read_scroll(trace: Trace, start: float, end: float) -> Scroll:
    """Between two times of `time.monotonic`."""
    began, ended = start * 1e6, end * 1e6
    main = _main_thread(trace, began, ended)
    here = [event for event in trace if event["pid"] == main["pid"] and began <= event["ts"] <= ended]
    drawn = sorted(event["ts"] for event in here if event["name"] == "DrawFrame")
    if not drawn:
        raise Stuck("the trace has no frame")
    commits = sum(event["name"] == "Commit" and event.get("ph") == "X" for event in here)
    edges = [began, *drawn, ended]
    gap = max(after - before for before, after in itertools.pairwise(edges))
    tasks = [task for task in _tasks(trace, main) if task.begin <= ended and task.end >= began]
    longest = max((task.end - task.begin for task in tasks), default=0)
    processor = sum(task.processor for task in tasks) / (ended - began)
    seconds = end - start
    return Scroll(len(drawn) / seconds, commits / seconds, gap / 1000, longest / 1000, processor)


@dataclass(frozen=True, order=True)
class _Task:
    begin: float
    end: float
    processor: float


def _tasks(trace: Trace, of: dict[str, Any]) -> list[_Task]:
    """The tasks of the event's thread, in order."""
    return sorted(
        _Task(event["ts"], event["ts"] + event["dur"], event.get("tdur", 0))
        for event in trace
        if event["name"] == "RunTask" and event["ph"] == "X" and (event["pid"], event["tid"]) == (of["pid"], of["tid"])
    )


def _main_thread(trace: Trace, began: float, ended: float) -> dict[str, Any]:
    """An event of the main thread of the page that drew the most frames in this time."""
    counts: dict[int, int] = {}
    for event in trace:
        if event["name"] == "DrawFrame" and began <= event["ts"] <= ended:
            counts[event["pid"]] = counts.get(event["pid"], 0) + 1
    if not counts:
        raise Stuck("the trace has no frame")
    pid = max(counts, key=lambda pid: counts[pid])
    for event in trace:
        names = event.get("args", {})
        if event["name"] == "thread_name" and event["pid"] == pid and names.get("name") == "CrRendererMain":
            return event
    raise Stuck("the trace does not name the page's main thread")
