"""A job's log: read in ranges, searched, and followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from weft.errors import Unavailable
from weft.models import Gap, LogLine, LogMatch, StateChange
from weft.transport.http import Transport, segment
from weft.transport.sse import PATIENCE, Follower

_PAGE = 5000
_PAUSE = 1.0  # seconds between two tries to fetch lines that were left out


@dataclass(frozen=True)
class Which:
    """Selects lines of a log.

    Attributes:
        learner: only lines of this learner, from 1.
        attempt: only lines of this attempt, from 1.
        tail: only the last ``tail`` lines.
        since: only lines since this time.
        at: start with the first line at or after this time.
        start: number of the first line.
        end: number of the last line.
    """

    learner: int | None = None
    attempt: int | None = None
    tail: int | None = None
    since: str | None = None
    at: str | None = None
    start: int | None = None
    end: int | None = None


class Log:
    """The log of one job."""

    def __init__(self, transport: Transport, job_id: str, which: Which) -> None:
        self._transport = transport
        self._job_id = job_id
        self._path = f"/jobs/{segment(job_id)}/logs"
        self._which = which
        self._next: int | None = which.start

    def read(self) -> Iterator[LogLine]:
        """The lines so far, in order."""
        which = self._which
        # Only the first request says where to begin.
        begin: dict[str, int | str | None] = {"tail": which.tail, "at": which.at}
        total: int | None = None
        while True:
            page = self._transport.json(
                "GET",
                self._path,
                params={
                    "learner": which.learner,
                    "attempt": which.attempt,
                    "since": which.since,
                    "from": self._next,
                    "limit": _PAGE,
                    **begin,
                },
            )
            if begin and isinstance(page.get("total"), int):
                total = page["total"]  # while the job writes, there is no end
            before, self._next = self._next or 0, int(page.get("next") or 0)
            for raw in page.get("lines") or []:
                line = LogLine.from_json(raw)
                if which.end is not None and line.n > which.end:
                    return
                yield line
            enough = total if which.end is None else which.end + 1
            if page.get("end") or self._next <= before or (enough is not None and self._next >= enough):
                return
            if total is None and which.tail is not None:
                return  # an older server, which sends no totals
            begin = {}

    def search(self, text: str, *, regex: bool = False, case: bool = False, context: int = 0) -> Iterator[LogMatch]:
        """The matching lines so far, in order. Each request searches a part of the log."""
        which = self._which
        position = which.start
        if when := which.at or which.since:
            page = self._transport.json("GET", self._path, params={"at": when, "from": position, "limit": 1})
            position = int(page.get("next") or 0) if page.get("first") is None else int(page["first"])
        while True:
            page = self._transport.json(
                "GET",
                f"{self._path}/search",
                params={
                    "q": text,
                    "regex": regex,
                    "case": case,
                    "context": context,
                    "from": position,
                    "learner": which.learner,
                    "attempt": which.attempt,
                },
            )
            position = int(page.get("next") or 0)
            for raw in page.get("matches") or []:
                match = LogMatch.from_json(raw)
                if which.end is not None and match.line.n > which.end:
                    return
                yield match
            if page.get("end") or (which.end is not None and position > which.end):
                return

    def follow(
        self, on_trouble: Callable[[Unavailable], None], patience: float = PATIENCE, *, complete: bool = True
    ) -> Iterator[LogLine | StateChange | Gap]:
        """The lines so far and the new ones, and the changes of the job's state; the last change is ``final``.

        Args:
            complete: fetch lines that the server left out because the caller read too slowly. Otherwise, a
                :class:`Gap` takes their place.
        """
        which = self._which
        if which.tail is not None or which.since is not None or which.at is not None:
            # Read ranges first: if the connection is lost later, the place to continue from is known.
            yield from self.read()
        events = Follower(
            self._transport,
            f"{self._path}/follow",
            params={"learner": which.learner, "attempt": which.attempt, "from": self._next},
            after=self._next - 1 if self._next else None,
            on_trouble=on_trouble,
            patience=patience,
        )
        state: StateChange | None = None
        for event in events:
            if event.name == "line":
                yield LogLine.from_json(event.data)
            elif event.name == "gap":
                gap = Gap.from_json(event.data)
                if complete:
                    yield from self._left_out(gap, on_trouble, patience)
                else:
                    yield gap
            elif event.name in ("state", "end"):
                state_now, reason = (str(event.data.get(key) or "") for key in ("state", "reason"))
                change = StateChange(state_now, reason, final=event.name == "end")
                if change != state:  # the server repeats it after each reconnection
                    yield change
                state = change

    def _left_out(self, gap: Gap, on_trouble: Callable[[Unavailable], None], patience: float) -> Iterator[LogLine]:
        rest = replace(self._which, tail=None, since=None, at=None, start=gap.first, end=gap.last)
        log = Log(self._transport, self._job_id, rest)
        contact = time.monotonic()
        while True:
            try:
                for line in log.read():
                    contact = time.monotonic()
                    yield line
                return
            except Unavailable as error:
                if time.monotonic() - contact > patience:
                    raise
                on_trouble(error)
                time.sleep(_PAUSE)
