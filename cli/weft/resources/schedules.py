"""Schedules: stored manifests that start jobs at times, and at promotions of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weft.errors import NotFound, WeftError
from weft.models import Schedule, Start
from weft.transport.http import Transport, segment


def _path(schedule_id: str, *rest: str) -> str:
    return "/".join(["/schedules", segment(schedule_id), *rest])


class Schedules:
    """The schedules of the token's project. Every method may raise a :class:`~weft.errors.WeftError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, manifest: str, code_sha256: str | None = None, overrides: Mapping[str, str] | None = None
    ) -> Schedule:
        """Store a manifest with the key ``schedule``, ``on`` or both, whose code is on the server already.
        :meth:`Client.schedule` sends the code, too.

        Args:
            manifest: the YAML text.
            code_sha256: the SHA-256 of the code's zip; None: the command needs no code.
            overrides: values by path, ``{"schedule.cron": "0 3 * * *"}``.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
            Conflict: the project has too many schedules.
        """
        body = {"manifest": manifest, "code_sha256": code_sha256, "set": dict(overrides or {})}
        return Schedule.from_json(self._transport.json("POST", "/schedules", json=body, holds="id"))

    def list(self) -> Iterator[Schedule]:
        """All schedules, newest first. The iteration fetches further pages when it needs them."""
        for page in self._pages("/schedules"):
            yield from (Schedule.from_json(schedule) for schedule in page.get("schedules") or [])

    def get(self, schedule_id: str) -> Schedule:
        """A schedule with its manifest.

        Raises:
            NotFound: there is no such schedule.
        """
        return Schedule.from_json(self._transport.json("GET", _path(schedule_id)))

    def find(self, reference: str) -> Schedule:
        """A schedule by its id, by the beginning of its id, by its name, or ``@last`` for the newest.

        Raises:
            NotFound: there is no such schedule.
            WeftError: several schedules are meant; or there is no schedule yet.
        """
        if reference == "@last":
            if (newest := next(self.list(), None)) is not None:
                return newest
            raise WeftError("no schedules yet")
        try:
            return self.get(reference)
        except NotFound:
            meant = (schedule for schedule in self.list() if schedule.id.startswith(reference))
            found = list(meant) or [schedule for schedule in self.list() if schedule.name == reference]
            if not reference or not found:
                raise
            if len(found) > 1:
                ids = ", ".join(schedule.id for schedule in found[:5])
                raise WeftError(f"{reference!r} means several schedules: {ids}") from None
            return found[0]

    def starts(self, schedule_id: str) -> Iterator[Start]:
        """The starts of a schedule, newest first.

        Raises:
            NotFound: there is no such schedule.
        """
        for page in self._pages(_path(schedule_id, "starts")):
            yield from (Start.from_json(start) for start in page.get("starts") or [])

    def run(self, schedule_id: str) -> Start:
        """Start a job now, beside earlier ones, and also while the schedule is paused.

        Raises:
            Conflict: its owner may not submit jobs any more, or its model has no version.
        """
        return Start.from_json(self._transport.json("POST", _path(schedule_id, "starts"), holds="id"))

    def pause(self, schedule_id: str) -> Schedule:
        """Let it start no jobs; those that have begun go on."""
        return Schedule.from_json(self._transport.json("POST", _path(schedule_id, "pause")))

    def resume(self, schedule_id: str) -> Schedule:
        """Let it start jobs again. The times and promotions of the pause start none.

        Raises:
            Conflict: its owner may not submit jobs any more.
        """
        return Schedule.from_json(self._transport.json("POST", _path(schedule_id, "resume")))

    def delete(self, schedule_id: str) -> None:
        """Remove a schedule; its jobs stay.

        Raises:
            NotFound: there is no such schedule.
        """
        self._transport.request("DELETE", _path(schedule_id))

    def _pages(self, path: str) -> Iterator[Mapping[str, Any]]:
        cursor: str | None = None
        while True:
            page = self._transport.json("GET", path, params={"limit": 200, "cursor": cursor})
            yield page
            cursor = page.get("next_cursor")
            if not cursor:
                return
