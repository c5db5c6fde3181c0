"""Reports: what several threads of an agent have for the API, in one call.

A report only saves calls. It is tried once; whatever it does not bring about, the thread does with a call of its own,
under the same sequence number, so that nothing is lost or doubled.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Literal

from weft_trainer.errors import ApiError, TrainerError, warn
from weft_trainer.service.client import ApiClient
from weft_trainer.service.heartbeat import Heartbeat
from weft_trainer.service.spool import Batch

_COMPANY = 1.0
"""Seconds for which metrics wait for log lines to travel with. They wait only if the last lines are no older than
_LINES_EVERY."""
_LINES_EVERY = 2.0
_SMALL = 100
"""Records. A larger batch is worth a call, and more may wait behind it."""
_LONGEST_PAUSE = 10.0
"""Seconds; well below the silence after which the server doubts that a learner lives (``timings.silence``)."""


class _Parcel:
    """A batch that waits for a report. ``sent``: it is in a report now. ``arrived``: None until that is known."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.sent = False
        self.arrived: bool | None = None


class Reporter:
    """Thread-safe. A thread that sends takes along what the other thread has, and the heartbeat if it is due."""

    def __init__(self, api: ApiClient, heartbeat: Heartbeat) -> None:
        self._api = api
        self._heartbeat = heartbeat
        self._changed = threading.Condition()
        self._waiting: dict[Literal["logs", "metrics"], _Parcel] = {}
        self._lines_at = float("-inf")
        """When the last lines were sent."""
        self._hurries = False
        self._apart = False
        """An older API takes no reports."""
        self.pause = 0.0
        """Seconds between two reports, at least, for which the API has asked. It asks when it is busy."""

    def hurry(self) -> None:
        """Let nothing wait for company any more."""
        with self._changed:
            self._hurries = True
            self._changed.notify_all()

    def logs(self, batch: Batch, instance: str) -> None:
        """As ``ApiClient.logs``."""
        self._lines_at = time.monotonic()
        if not self._arrives("logs", batch, instance, patience=0.0):
            self._api.logs(batch, instance)

    def metrics(self, batch: Batch, instance: str) -> None:
        """As ``ApiClient.metrics``."""
        lines_flow = time.monotonic() - self._lines_at < max(_LINES_EVERY, 2 * self.pause)
        waits = lines_flow and len(batch.lines) < _SMALL
        if not self._arrives("metrics", batch, instance, patience=max(_COMPANY, self.pause) if waits else 0.0):
            self._api.metrics(batch, instance)

    def _arrives(self, name: Literal["logs", "metrics"], batch: Batch, instance: str, patience: float) -> bool:
        """Send the batch in a report. Returns whether it has arrived. Raises Fenced."""
        if self._apart or instance != self._api.instance:
            return False
        parcel = _Parcel(batch)
        parcels: dict[Literal["logs", "metrics"], _Parcel] = {}
        with self._changed:
            self._waiting[name] = parcel
            self._changed.wait_for(lambda: parcel.sent or self._hurries, patience)
            if not parcel.sent:
                parcels, self._waiting = self._waiting, {}
                for each in parcels.values():
                    each.sent = True
                self._changed.notify_all()
        if parcels:
            self._send(parcels)
        with self._changed:
            self._changed.wait_for(lambda: parcel.arrived is not None)
        return bool(parcel.arrived)

    def _send(self, parcels: dict[Literal["logs", "metrics"], _Parcel]) -> None:
        """Raises Fenced."""
        refused = parcels.keys()
        try:
            begun, beat = time.monotonic(), self._beat()
            batches = {name: parcel.batch for name, parcel in parcels.items()}
            answer = self._api.report(beat, batches.get("logs"), batches.get("metrics"))
            if answer.get("heartbeat"):
                self._heartbeat.arrived(begun, answer["heartbeat"])
            refused = answer["refused"].keys()
            self.pause = self._heartbeat.pause = min(float(answer.get("pause") or 0.0), _LONGEST_PAUSE)
        except ApiError as error:
            self._apart = error.status == 404
        except TrainerError:
            pass  # the API is away
        finally:
            with self._changed:
                for name, parcel in parcels.items():
                    parcel.arrived = name not in refused
                self._changed.notify_all()

    def _beat(self) -> dict[str, Any] | None:
        try:
            return self._heartbeat.take()
        except Exception as error:  # no line waits until the use of the machine can be read
            warn(f"a report has no heartbeat: {type(error).__name__}: {error}")
            return None
