"""A job's events and its log as one stream, in an order that makes sense to a reader."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

from weft.models import TERMINAL, Event, Gap, LogLine, StateChange

Item = Event | LogLine | StateChange | Gap
_WAITING = 5000
"""Things that may have come and not been taken."""
_LATE = 5.0
"""Seconds that events may take to say what the end of the log has said already."""


class _Ended:
    """A source's last word; ``error`` is what ended it, if it was one."""

    def __init__(self, source: str, error: BaseException | None = None) -> None:
        self.source = source
        self.error = error


def watch(events: Iterable[Event], log: Iterable[LogLine | StateChange | Gap]) -> Iterator[Item]:
    """Both until both have ended. The event of the last state comes after the last line of the log.

    Raises:
        WeftError: what either of them raised.
    """
    # Bounded: to one who reads slowly the server tells so, and this process does not grow.
    arrivals: queue.Queue[Item | _Ended] = queue.Queue(_WAITING)

    def pump(source: str, items: Iterable[Item]) -> None:
        try:
            for item in items:
                arrivals.put(item)
        except Exception as error:
            arrivals.put(_Ended(source, error))
        else:
            arrivals.put(_Ended(source))

    running = {"events", "log"}
    for name, items in (("events", events), ("log", log)):
        # Daemons: whoever stops watching needs not wait for a connection to say something.
        threading.Thread(target=pump, args=(name, items), name=f"weft-{name}", daemon=True).start()
    held: list[Event] = []
    while running:
        try:
            item = arrivals.get(timeout=None if "log" in running else _LATE)
        except queue.Empty:
            break
        if isinstance(item, _Ended):
            if item.error is not None:
                raise item.error
            running.discard(item.source)
        elif isinstance(item, Event) and "log" in running and item.state in TERMINAL:
            held.append(item)
        elif isinstance(item, Event) and held:
            # It was not the last state: the job was retried or resumed.
            yield from [*held, item]
            held.clear()
        else:
            yield item
    yield from held
