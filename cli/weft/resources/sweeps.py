"""Sweeps: many jobs that differ in their parameters only, and a search for the best of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from weft.errors import NotFound, WeftError
from weft.models import SweepInfo, Trial
from weft.transport.http import Transport, segment

ENDED = frozenset({"COMPLETED", "STOPPED", "FAILED"})
"""The states in which a sweep stays."""
WITH_RUNGS = frozenset({"asha", "hyperband"})
"""The searches whose trials may go on after their end."""
_POLL = 1.0


def _path(sweep_id: str, *rest: str) -> str:
    return "/".join(["/sweeps", segment(sweep_id), *(segment(part) for part in rest)])


class Sweeps:
    """The sweeps of the token's project. Every method may raise a :class:`~weft.errors.WeftError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(
        self, manifest: str, code_sha256: str | None = None, overrides: Mapping[str, str] | None = None
    ) -> SweepInfo:
        """Submit a manifest with the key ``sweep``, whose code is on the server already. :meth:`Client.sweep` sends the
        code, too.

        Args:
            manifest: the YAML text.
            code_sha256: the SHA-256 of the code's zip; None: the command needs no code.
            overrides: values by path, ``{"sweep.trials": "10"}``.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
        """
        body = {"manifest": manifest, "code_sha256": code_sha256, "set": dict(overrides or {})}
        return SweepInfo.from_json(self._transport.json("POST", "/sweeps", json=body, holds="id"))

    def list(self) -> Iterator[SweepInfo]:
        """All sweeps, newest first. The iteration fetches further pages when it needs them."""
        for page in self._pages("/sweeps", {}):
            yield from (SweepInfo.from_json(sweep) for sweep in page.get("sweeps") or [])

    def get(self, sweep_id: str) -> SweepInfo:
        """A sweep with its manifest.

        Raises:
            NotFound: there is no such sweep.
        """
        return SweepInfo.from_json(self._transport.json("GET", _path(sweep_id)))

    def find(self, reference: str) -> SweepInfo:
        """A sweep by its id, by the beginning of its id, or ``@last`` for the newest.

        Raises:
            NotFound: there is no such sweep.
            WeftError: several ids begin so; or there is no sweep yet.
        """
        if reference == "@last":
            if (newest := next(self.list(), None)) is not None:
                return newest
            raise WeftError("no sweeps yet")
        try:
            return self.get(reference)
        except NotFound:
            found = [sweep for sweep in self.list() if sweep.id.startswith(reference)] if reference else []
            if len(found) > 1:
                ids = ", ".join(sweep.id for sweep in found[:5])
                raise WeftError(f"{reference!r} begins several ids: {ids}") from None
            if not found:
                raise
            return found[0]

    def trials(self, sweep_id: str, *, best_first: bool = False) -> Iterator[Trial]:
        """The trials of a sweep, by number.

        Args:
            best_first: only those with a value, the best first.

        Raises:
            NotFound: there is no such sweep.
        """
        for page in self._pages(_path(sweep_id, "trials"), {"sort": "best" if best_first else "number"}):
            yield from (Trial.from_json(trial) for trial in page.get("trials") or [])

    def importance(self, sweep_id: str) -> Mapping[str, float]:
        """How much each parameter matters for a good value, the most important first; together 1. Empty with fewer
        than 10 trials that have a value, or if all values are the same.

        Raises:
            NotFound: there is no such sweep.
        """
        answer = self._transport.json("GET", _path(sweep_id, "importance"))
        return {str(found["name"]): float(found["share"]) for found in answer.get("parameters") or ()}

    def pause(self, sweep_id: str) -> SweepInfo:
        """Let no new trial begin; those that have begun go on.

        Raises:
            Conflict: the sweep is neither RUNNING nor PAUSED.
        """
        return self._steer(sweep_id, "pause")

    def resume(self, sweep_id: str) -> SweepInfo:
        """Go on with a paused sweep.

        Raises:
            Conflict: the sweep is neither RUNNING nor PAUSED.
        """
        return self._steer(sweep_id, "resume")

    def stop(self, sweep_id: str) -> SweepInfo:
        """End a sweep: no new trial begins, and those under way are halted.

        Raises:
            Conflict: the sweep has ended otherwise.
        """
        return self._steer(sweep_id, "stop")

    def delete(self, sweep_id: str, *, jobs: bool = False) -> None:
        """Delete a sweep that has ended.

        Args:
            jobs: also delete the jobs of its trials.

        Raises:
            Conflict: the sweep has not ended.
        """
        query = {"jobs": "true"} if jobs else {}
        self._transport.request("DELETE", _path(sweep_id), params=query)

    def wait(self, sweep_id: str, timeout: float | None = None) -> SweepInfo:
        """Wait until a sweep has ended; polls.

        Args:
            timeout: seconds; None: for as long as it takes.

        Raises:
            TimeoutError: the sweep has not ended in time.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (sweep := self.get(sweep_id)).state not in ENDED:
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"sweep {sweep_id} has not ended within {timeout:g} s; it is {sweep.state}")
            time.sleep(_POLL)
        return sweep

    def ask(self, sweep_id: str, parameters: Mapping[str, Any] | None = None, *, run: bool = True) -> Trial:
        """Make one more trial.

        Args:
            parameters: a value for each parameter; None: the sweep's search chooses.
            run: submit a job that runs the trial. If not, run it yourself, and :meth:`tell` its value.

        Raises:
            Conflict: the sweep is not RUNNING, or has made all of its ``trials``.
        """
        body = {"parameters": None if parameters is None else dict(parameters), "run": run}
        return Trial.from_json(self._transport.json("POST", _path(sweep_id, "trials"), json=body, holds="number"))

    def tell(self, sweep_id: str, number: int, value: float | None = None, *, failed: str | None = None) -> Trial:
        """Tell the value of a trial that was asked for with ``run=False``; or with ``failed`` why there is none.

        Raises:
            Conflict: the trial is a job, or has ended with another result.
        """
        body = {"value": value} if failed is None else {"failed": failed}
        return Trial.from_json(self._transport.json("PUT", _path(sweep_id, "trials", str(number), "result"), json=body))

    def _steer(self, sweep_id: str, verb: str) -> SweepInfo:
        return SweepInfo.from_json(self._transport.json("POST", _path(sweep_id, verb)))

    def _pages(self, path: str, params: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        cursor: str | None = None
        while True:
            page = self._transport.json("GET", path, params={**params, "limit": 500, "cursor": cursor})
            yield page
            cursor = page.get("next_cursor")
            if not cursor:
                return
