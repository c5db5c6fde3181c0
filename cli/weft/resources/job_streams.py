"""The events and the log of a job, as far as they have come or as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.errors import Unavailable
from weft.models import TERMINAL, Event, Gap, Json, LogLine, LogMatch, StateChange
from weft.resources.job_files import JobFiles, job_path
from weft.resources.logs import Log, Which
from weft.resources.watch import Item, watch
from weft.transport.http import Query, segment
from weft.transport.sse import PATIENCE, Follower

_PAGE = 500
Trouble = Callable[[Unavailable], None]


def _ignore(error: Unavailable) -> None:
    """Ignore lost connections, which are restored automatically."""


class JobStreams(JobFiles):
    """The part of :class:`weft.resources.jobs.Jobs` that reads events and logs."""

    def events(self, job_id: str, *, after: int | None = None) -> Iterator[Event]:
        """The events so far, oldest first; only events after the event with the id ``after``."""
        while True:
            page = self._transport.json("GET", job_path(job_id, "events"), params={"after": after, "limit": _PAGE})
            events = [Event.from_json(event) for event in page.get("events") or []]
            yield from events
            if len(events) < _PAGE:
                return
            after = events[-1].id

    def follow_events(
        self, job_id: str, *, after: int | None = None, on_trouble: Trouble = _ignore, patience: float = PATIENCE
    ) -> Iterator[Event]:
        """The events so far and the new ones, until the job has ended. Lost connections are restored.

        Raises:
            Unavailable: no contact for ``patience`` seconds.
        """
        for event in Follower(
            self._transport,
            job_path(job_id, "events"),
            params={"after": after},
            after=after,
            finished=lambda: self._has_ended(job_id),
            on_trouble=on_trouble,
            patience=patience,
        ):
            if "id" in event.data and "kind" in event.data:
                yield Event.from_json(event.data)

    def logs(self, job_id: str, **which: Any) -> Iterator[LogLine]:
        """The log so far, in order. ``which`` are the attributes of :class:`~weft.resources.logs.Which`:

        Args:
            learner: only lines of this learner, from 1.
            attempt: only lines of this attempt, from 1.
            tail: only the last ``tail`` lines.
            since: only lines since this time: ISO 8601, milliseconds since the epoch, or an age such as ``30s``.
            at: start with the first line at or after this time.
            start, end: the numbers of the first and the last line.
        """
        return Log(self._transport, job_id, Which(**which)).read()

    def search_logs(
        self, job_id: str, text: str, *, regex: bool = False, case: bool = False, context: int = 0, **which: Any
    ) -> Iterator[LogMatch]:
        """The lines so far that contain ``text``, in order.

        Args:
            text: a substring, or with ``regex`` a regular expression in RE2's syntax.
            case: whether the search is case-sensitive.
            context: number of lines before and after each match, up to 20.
            which: see :meth:`logs`; all except ``tail``.

        Raises:
            ApiError: ``text`` is not a valid regular expression.
        """
        return Log(self._transport, job_id, Which(**which)).search(text, regex=regex, case=case, context=context)

    def training_data(
        self, job_id: str, kind: str, *, pagesize: int = 20, pos: int = 0, since_time: str = ""
    ) -> Sequence[Json]:
        """A page of FfDL's ``loglines`` or ``emetrics``, in its form (docs/from-ffdl.md).

        Args:
            pos: number of the first record, from 1; negative: counted from the end.
            since_time: start of the page: milliseconds since the epoch, a span such as ``1h30m``, or a date; ``pos``
                then has no effect.
        """
        params: Query = {"pagesize": pagesize, "pos": pos, "since_time": since_time}
        return list(self.ffdl(f"/logs/{segment(job_id)}/{kind}", params)["models"])

    def ffdl(self, path: str, params: Query | None = None) -> dict[str, Any]:
        """The answer of FfDL's API for a path below ``/v1``, in its form (docs/from-ffdl.md)."""
        return self._transport.json("GET", path, params=params, base="/v1")

    def follow_logs(
        self,
        job_id: str,
        *,
        on_trouble: Trouble = _ignore,
        patience: float = PATIENCE,
        complete: bool = True,
        **which: Any,
    ) -> Iterator[LogLine | StateChange | Gap]:
        """The log so far and the new lines, until the job has ended, retries included.

        Each line comes once, even if connections are lost or the server restarts. Among the lines are the values
        :class:`~weft.models.StateChange`; the last one is ``final``.

        Args:
            complete: False: if the caller reads too slowly, the server leaves out lines, and a
                :class:`~weft.models.Gap` takes their place.
            which: see :meth:`logs`; all except ``end``.

        Raises:
            Unavailable: no contact for ``patience`` seconds.
        """
        return Log(self._transport, job_id, Which(**which)).follow(on_trouble, patience, complete=complete)

    def watch(self, job_id: str, *, on_trouble: Trouble = _ignore, complete: bool = True) -> Iterator[Item]:
        """Events and log lines together, until the job has ended, as ``weft train --follow`` shows them."""
        log = self.follow_logs(job_id, on_trouble=on_trouble, complete=complete)
        return watch(self.follow_events(job_id, on_trouble=on_trouble), log)

    def _has_ended(self, job_id: str) -> bool:
        return self._transport.json("GET", job_path(job_id), holds="state")["state"] in TERMINAL
