"""Ending an attempt: its pods with a grace, then the Secret, which takes the rest along."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from weft_workers.engines.kubernetes import explain, objects
from weft_workers.engines.kubernetes.client import METADATA, Cluster, Json, Refused

_logger = logging.getLogger(__name__)

_AT_LEAST = 1
"""Seconds of grace. With 0 the server forgets the pod at once, whether its processes have ended or not."""
_SLACK = timedelta(seconds=2)  # of timestamps in whole seconds, and of callers that compute the rest of a grace
_OVERDUE = timedelta(minutes=2)
"""After a pod's grace: how long to wait for a kubelet that answers but can't end the pod (a hung device, say)."""
_KUEUE = "kueue.x-k8s.io"
_KUEUE_VERSIONS = ("v1beta1", "v1beta2")


class Stopper:
    """Ends the attempts of an engine.

    One call is enough: a pod's deletion is under way at the server with its grace, and the garbage collector does the
    rest when the Secret is gone. It leaves pods alone that are being deleted already. The NetworkPolicy must not go
    before the last of them: while it still saves a checkpoint, it needs its ways and no others. So the living pods
    become its owners, too.

    A grace that is shortened holds for the server at once; kubelets before 1.22 keep to the one they began with.

    Args:
        own: labels of the engine's objects; others of the same name are left alone.
        node: what is known of a node, by name.
        kueue: whether Kueue admits.
    """

    def __init__(
        self, cluster: Cluster, own: Mapping[str, str], node: Callable[[str], Json | None], *, kueue: bool
    ) -> None:
        self._cluster, self._own, self._node, self._kueue = cluster, own, node, kueue

    def end(self, pod: Json, now: datetime, grace: timedelta) -> None:
        """Delete a pod, or shorten the grace of its deletion."""
        metadata = pod["metadata"]
        ends = explain.moment(metadata.get("deletionTimestamp"))
        if ends is None:
            # A pod that has not started yet, or has ended, has nothing to save.
            seconds = math.ceil(grace.total_seconds()) if explain.is_running(pod) else 0
            self._delete(pod, max(_AT_LEAST, seconds))
        elif not explain.is_over(pod):
            began = ends - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
            wanted = now + grace
            if now >= ends + _OVERDUE or (now >= min(ends, wanted) and self._is_silent(pod, now)):
                # Its end can't be confirmed. Its token is no longer valid, so it is fenced.
                _logger.warning("pod %s does not end, or its node is silent: forgetting it", metadata["name"])
                self._delete(pod, 0)
            elif wanted < ends - _SLACK:
                # The server counts a shorter grace from the first request on.
                self._delete(pod, max(_AT_LEAST, math.ceil((wanted - began).total_seconds())))

    def keep_policy(self, namespace: str, run_name: str, pods: Iterable[Json]) -> None:
        """Before they are deleted: let the attempt's NetworkPolicy stay for as long as these pods live on."""
        living = [pod for pod in pods if not (explain.is_over(pod) or pod["metadata"].get("deletionTimestamp"))]
        if not living:
            return
        try:
            there = self._cluster.get("read_namespaced_network_policy", run_name, namespace)
            if not self._is_own(there):
                return
            owners = there["metadata"].get("ownerReferences") or []
            known = {owner["uid"] for owner in owners}
            more = [objects.reference({"kind": "Pod", **pod}) for pod in living if pod["metadata"]["uid"] not in known]
            if more:
                change = {"metadata": {"ownerReferences": [*owners, *more]}}
                self._cluster.get("patch_namespaced_network_policy", run_name, namespace, change)
        except Refused as error:
            if error.status != 404:
                _logger.warning("run %s: its network policy goes before its pods: %s", run_name, error)

    def forget(self, namespace: str, run_name: str) -> None:
        """Delete the Secret; the garbage collector deletes what it owns."""
        try:
            there = self._cluster.get("read_namespaced_secret", run_name, namespace, _headers={"Accept": METADATA})
        except Refused as error:
            if error.status == 404:
                return
            raise self._cluster.unreachable(str(error)) from error
        if self._is_own(there):
            self._quietly(
                "delete_namespaced_secret",
                run_name,
                namespace,
                body={"propagationPolicy": "Background", "preconditions": {"uid": there["metadata"]["uid"]}},
            )

    def release(self, namespace: str, run_name: str, pods: list[Json]) -> None:
        """Have Kueue let go of pods that never got a node: it holds on to them while it hopes for others in their
        place. Those that had one it lets go when they have ended."""
        waits = [pod for pod in pods if explain.is_over(pod) and explain.terminated(pod) is None]
        if self._kueue and waits and all(explain.is_over(pod) for pod in pods):
            for version in _KUEUE_VERSIONS:
                self._quietly("delete_namespaced_custom_object", _KUEUE, version, namespace, "workloads", run_name)

    def _delete(self, pod: Json, grace: int) -> None:
        metadata = pod["metadata"]
        self._quietly(
            "delete_namespaced_pod",
            metadata["name"],
            metadata["namespace"],
            # All of it in the body: where there is one, the server does not look at the query.
            body={"gracePeriodSeconds": grace, "preconditions": {"uid": metadata["uid"]}},
        )

    def _quietly(self, call: str, *args: Any, **options: Any) -> None:
        """A deletion of an object that may be gone already; its name may belong to another object by now."""
        try:
            self._cluster.get(call, *args, **options)
        except Refused as error:
            if error.status not in (404, 409):
                raise self._cluster.unreachable(str(error)) from error

    def _is_own(self, there: Json) -> bool:
        return self._own.items() <= (there["metadata"].get("labels") or {}).items()

    def _is_silent(self, pod: Json, now: datetime) -> bool:
        where = pod["spec"]["nodeName"]
        return bool(explain.silence(self._node(where), where, now))


def namespaces(found: list[Json]) -> list[str]:
    return sorted({pod["metadata"]["namespace"] for pod in found})
