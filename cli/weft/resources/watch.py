"""A job's events and its log as one stream, in an order that a reader expects."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

from weft.models import TERMINAL, Event, Gap, LogLine, StateChange

Item = Event | LogLine | StateChange | Gap
_WAITING = 5000
"""Maximum number of items that wait for the reader."""
_LATE = 5.0
"""Seconds to wait for the last events after the end of the log."""


class _Ended:
    """The end of a source; ``error`` is the error that ended it, or None."""

    def __init__(self, source: str, error: BaseException | None = None) -> None:
        self.source = source
        self.error = error


def watch(events: Iterable[Event], log: Iterable[LogLine | StateChange | Gap]) -> Iterator[Item]:
    """Both sources, until both have ended. The event of the last state comes after the last line of the log.

    Raises:
        WeftError: a source raised it.
    """
    # Bounded: if the reader is slow, the server leaves out lines, and this process does not grow.
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
        # Daemons, so that a reader that stops does not have to wait for a connection.
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
            # It was not the last state: the job has been retried or resumed.
            yield from [*held, item]
            held.clear()
        else:
            yield item
    yield from held
