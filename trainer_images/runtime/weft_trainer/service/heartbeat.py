"""The heartbeat: it reports that the learner lives and how much it uses. The answer may order a stop.

The API notes a heartbeat at once and holds its answer back until the next one is due, or until somebody asks for a
tunnel to this learner. So an agent learns of a tunnel at once, without a further connection or request. While reports
(``reporter``) bring heartbeats, too, the API holds the answer back for longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft_trainer.control import Control
from weft_trainer.errors import Fenced, TrainerError
from weft_trainer.service.client import ApiClient
from weft_trainer.service.vitals import Vitals

if TYPE_CHECKING:
    from weft_trainer.machine.usage import SystemMetrics

_AGAIN = 0.05
"""Seconds."""


class Heartbeat:
    """
    Args:
        every: seconds.
        ignore: processes whose use is not the program's.
        tunnels: called with the tunnels that an answer asks for.
    """

    def __init__(
        self,
        api: ApiClient,
        control: Control,
        every: float,
        ignore: Collection[int],
        vitals: Vitals,
        tunnels: Callable[[Sequence[Mapping[str, Any]]], None],
    ) -> None:
        self._api = api
        self._control = control
        self._every = every
        self._ignore = ignore
        self._vitals = vitals
        self._tunnels = tunnels
        self._stop = threading.Event()
        self._answered = self._sent = time.monotonic()
        """When the last heartbeat was sent of those that were answered, and of all that are on their way alone."""
        self._usage: SystemMetrics | None = None
        self._system: dict[str, Any] = {}
        self._system_at = self._system_from = float("-inf")
        """When reading it ended, and when it began."""
        self._lock = threading.Lock()
        self.pause = 0.0
        """Seconds between two reports, if the API has asked for a pause: they bring the heartbeats meanwhile."""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    @property
    def silence(self) -> float:
        """Seconds since the service last confirmed this attempt."""
        return time.monotonic() - self._answered

    def take(self) -> dict[str, Any] | None:
        """A heartbeat that travels in a report; None: it is too early for another."""
        if time.monotonic() < self._sent + self._every / 2:
            return None
        return self._read()

    def arrived(self, sent: float, answer: Mapping[str, Any]) -> None:
        """A heartbeat that was sent at this time (``time.monotonic``) has been answered."""
        self._sent = max(self._sent, sent)
        self._answered = max(self._answered, sent)  # the API may have known better while it held the answer back
        self._vitals.asked(answer.get("dump"), answer.get("look"))
        if answer.get("stop"):
            grace = answer.get("grace_seconds")
            self._control.request_stop(None if grace is None else float(grace))

    def _read(self) -> dict[str, Any] | None:
        with self._lock:
            if self._usage is None:
                return None
            # Over a very short time, a processor's use says nothing.
            now = time.monotonic()
            fresh = now >= self._system_at + self._every / 4
            if fresh:
                self._system, self._system_from, self._system_at = self._usage.read(), now, time.monotonic()
            wrote = fresh and self._usage.wrote
            vitals = self._vitals.read(self._system, self._usage.demand, wrote, self._system_from)
            return {"system": self._system, **vitals}

    def _run(self) -> None:
        # Not before the first beat is due: psutil's import is no part of the learner's start.
        if self._stop.wait(self._every):
            return
        from weft_trainer.machine.usage import SystemMetrics

        self._usage = SystemMetrics(self._ignore)
        while True:
            self._sent = sent = time.monotonic()
            asked = None
            every = max(self._every, 2 * self.pause)
            try:
                answer = self._api.heartbeat(self._read() or {}, every)
                self.arrived(sent, answer)
                asked = answer.get("tunnels")
            except Fenced:
                self._control.fence()
                return
            except TrainerError:
                pass  # the API is away, or refuses this beat: the next beat shows which
            if asked:
                self._tunnels(asked)
            # Soon after a tunnel, to hear of the next one.
            if self._stop.wait(_AGAIN if asked else max(0.0, sent + every - time.monotonic())):
                return
