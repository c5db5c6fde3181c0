"""A job's log: read in ranges, and followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weft.errors import Unavailable
from weft.follow import PATIENCE, Follower
from weft.http import Transport, segment
from weft.models import LogLine, StateChange

_PAGE = 5000


@dataclass(frozen=True)
class Which:
    """Which lines: one learner's (from 1), one attempt's (from 1), the last ``tail``, those from ``since`` on."""

    learner: int | None = None
    attempt: int | None = None
    tail: int | None = None
    since: str | None = None


class Log:
    """The log of one job. ``next`` is the number of the line that the last reading would go on from."""

    def __init__(self, transport: Transport, job_id: str, which: Which) -> None:
        self._transport = transport
        self._path = f"/jobs/{segment(job_id)}/logs"
        self._which = which
        self._next: int | None = None

    def read(self) -> Iterator[LogLine]:
        """The lines so far, in order."""
        which = self._which
        tail = which.tail
        while True:
            page = self._transport.json(
                "GET",
                self._path,
                params={
                    "learner": which.learner,
                    "attempt": which.attempt,
                    "tail": tail,
                    "since": which.since,
                    "from": self._next,
                    "limit": _PAGE if tail is None else None,
                },
            )
            yield from (LogLine.from_json(one) for one in page.get("lines") or [])
            before, self._next = self._next or 0, int(page.get("next") or 0)
            if tail is not None or page.get("end") or self._next <= before:
                return

    def follow(
        self, on_trouble: Callable[[Unavailable], None], patience: float = PATIENCE
    ) -> Iterator[LogLine | StateChange]:
        """The lines so far and those to come; between them what the job's state becomes, the last one ``final``."""
        which = self._which
        if which.tail is not None or which.since is not None:
            # By ranges first, so that the place to go on from is known before anything can break.
            yield from self.read()
        events = Follower(
            self._transport,
            f"{self._path}/follow",
            params={"learner": which.learner, "from": self._next},
            after=self._next - 1 if self._next else None,
            on_trouble=on_trouble,
            patience=patience,
        )
        state: StateChange | None = None
        for event in events:
            if event.name == "line":
                line = LogLine.from_json(event.data)
                if which.attempt is None or line.attempt == which.attempt:
                    yield line
            elif event.name in ("state", "end"):
                state_now, reason = (str(event.data.get(key) or "") for key in ("state", "reason"))
                change = StateChange(state_now, reason, final=event.name == "end")
                if change != state:  # the server says it again after each reconnection
                    yield change
                state = change
