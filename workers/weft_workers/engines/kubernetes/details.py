"""Details that are read for a few pods only, and rarely: their events, and why Kueue holds them back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime

from weft_core.engine import EngineUnreachable
from weft_workers.engines.kubernetes import events, explain, kueue, names
from weft_workers.engines.kubernetes.client import Cluster, Json, Refused

_EVERY = 10.0  # seconds between two reads of the same thing
_AT_ONCE = 5  # reads in one round; the other pods have their turn in a later one
_KUEUE = "kueue.x-k8s.io"
_VERSIONS = ("v1beta2", "v1beta1")


class Details:
    """Remembers the details. :meth:`round` begins a round of reads."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        self._cluster, self._queue = cluster, queue
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, str]] = {}
        self._left = 0

    def round(self, uids: Collection[str]) -> None:
        """Allow some reads, and forget pods that are gone."""
        with self._lock:
            self._left = _AT_ONCE
            self._known = {key: known for key, known in self._known.items() if key.partition("/")[0] in uids}

    def event(self, pod: Json, now: datetime) -> str:
        """The explanation in a pod's events, if the pod itself has none."""
        if not explain.needs_events(pod, now):
            return ""
        return self._recall(f"{pod['metadata']['uid']}/events", lambda: self._read_events(pod))

    def held(self, pod: Json) -> str:
        """Why Kueue has not admitted a pod's group yet."""
        queue = names.label(pod, names.QUEUE_LABEL) or self._queue
        why = self._recall(f"{pod['metadata']['uid']}/workload", lambda: self._read_workload(pod))
        return f"waiting in Kueue's queue {queue}" + (f": {why}" if why else "")

    def _recall(self, key: str, read: Callable[[], str]) -> str:
        with self._lock:
            at, known = self._known.get(key, (0.0, ""))
            if (at and time.monotonic() - at < _EVERY) or not self._left:
                return known
            self._left -= 1
            self._known[key] = time.monotonic(), known
        try:
            found = read()
        except (EngineUnreachable, Refused):
            return known  # no more than a hint is missing
        with self._lock:
            self._known[key] = time.monotonic(), found
        return found

    def _read_events(self, pod: Json) -> str:
        metadata = pod["metadata"]
        chosen = f"involvedObject.uid={metadata['uid']}"
        found, _ = self._cluster.list("list_namespaced_event", metadata["namespace"], field_selector=chosen)
        return events.say(found)

    def _read_workload(self, pod: Json) -> str:
        namespace, run = pod["metadata"]["namespace"], names.label(pod, names.RUN)
        for version in _VERSIONS:
            try:
                found = self._cluster.get("get_namespaced_custom_object", _KUEUE, version, namespace, "workloads", run)
            except Refused:
                continue
            return kueue.explain(found.get("status") or {})
        return ""
