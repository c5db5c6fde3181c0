"""The exchange between a run's driver and the engine, through Ray's own key-value store.

The engine writes with ``PUT /api/packages/gcs/<name>``, and the driver reads that as ``gcs://<name>``. The driver
answers in its job's metadata, which ``GET /api/jobs/`` shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ray._raylet import GcsClient
from ray.experimental import internal_kv

STATUS = "weft_status"
"""The key of the job's metadata that holds the run's status, as JSON."""
_JOBS = "job"  # Ray's namespace of its job records
_RECORD = "_ray_internal_job_info_"


class BoardFailed(Exception):
    """This version of Ray stores its jobs in another way than the versions that Weft knows."""


def connect(address: str) -> None:
    """Connect a process that does not belong to the cluster; ``address`` is that of the GCS."""
    internal_kv._initialize_internal_kv(GcsClient(address=address))


class Board:
    """The notes about one run."""

    def __init__(self, submission_id: str, notes: str) -> None:
        self._record = _RECORD + submission_id
        self._request = f"gcs://{notes}-request.zip"
        self._stops = f"gcs://{notes}-stop-"  # one for each stop

    def take_request(self) -> dict[str, Any] | None:
        """The engine's request, with the attempt's token. Reading it removes it from the store."""
        request = _read(self._request)
        internal_kv._internal_kv_del(self._request)
        return request

    def stop_grace(self) -> float | None:
        """The shortest grace, in seconds from now, of the stop requests that are new; None: there is none."""
        keys = internal_kv._internal_kv_list(self._stops)
        requests = [_read(key) for key in keys]
        for key in keys:
            internal_kv._internal_kv_del(key)
        return min((max(0.0, float(request["grace"])) for request in requests if request is not None), default=None)

    def node_id(self) -> str:
        """The node on which the job itself runs. Raises: BoardFailed."""
        return str(self._job()["driver_node_id"])

    def publish(self, status: Mapping[str, Any]) -> None:
        """Raises: BoardFailed."""
        record = self._job()
        record["metadata"][STATUS] = json.dumps(status, separators=(",", ":"), ensure_ascii=False)
        internal_kv._internal_kv_put(self._record, json.dumps(record), namespace=_JOBS)

    def _job(self) -> dict[str, Any]:
        try:
            record = dict(json.loads(internal_kv._internal_kv_get(self._record, namespace=_JOBS)))
            known = isinstance(record["metadata"], dict) and record["driver_node_id"]
        except (TypeError, KeyError, ValueError) as error:
            raise BoardFailed(f"the record of this job in Ray's key-value store can't be read: {error!r}") from error
        if not known:
            raise BoardFailed(f"the record of this job in Ray's key-value store is another one: {sorted(record)}")
        return record

    def clear(self) -> None:
        """Remove the notes that late requests may have written."""
        for key in (self._request, *internal_kv._internal_kv_list(self._stops)):
            internal_kv._internal_kv_del(key)


def _read(key: str | bytes) -> dict[str, Any] | None:
    data = internal_kv._internal_kv_get(key)
    return None if data is None else dict(json.loads(data))
