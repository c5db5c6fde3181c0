"""Explains a pod's conditions, container states and events: what they mean for its learner. Pure functions."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from weft_core.engine import LearnerObservation, LearnerState
from weft_core.words import describe_exit, size
from weft_workers.engines.kubernetes import names, quantity, schedule
from weft_workers.engines.kubernetes.errors import brief, pull_error

Json = dict[str, Any]

PERSISTS = 60.0
"""Seconds after which an image that can't be pulled or a container that can't be made is the attempt's failure."""
_SILENT = 60.0
"""Seconds after which a node that says it is not ready counts as one that does not answer."""
BAD_IMAGE, BAD_START = "S103", "S101"

_PULL = {
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "ImageInspectError",
    "SignatureValidationFailed",
}
_CREATE = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_PASSES = re.compile(r"timed out|timeout|deadline exceeded|connection refused|is reserved for", re.IGNORECASE)
"""What a busy node or API server says of a container that it does not make yet: the kubelet tries again."""
_NEVER_RAN = {"StartError", "ContainerCannotRun"}  # of containers that ended before they began
_HOPELESS = re.compile(
    r"not found|unauthorized|authentication required|denied|forbidden|manifest unknown|does not exist|"
    r"no match for platform|no matching manifest|ErrImageNeverPull|SignatureValidationFailed|unsupported",
    re.IGNORECASE,
)
_OVER_OWN_LIMIT = re.compile(r"exceeds the (total )?limit|exceeded its local ephemeral storage limit")
_NO_PYTHON = re.compile(r"exec: \\?\"(python3?)\\?\"|(python3?): no such file", re.IGNORECASE)
_NO_AGENT = "No module named weft_trainer"
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority",
    "DeletionByTaintManager": "taken off its node, which has a taint that it does not tolerate",
    "EvictionByEvictionAPI": "evicted: its node is being drained",
    "DeletionByPodGC": "its node is gone",
}
_PLATFORM = {  # reasons of a failed pod; none of them is the learner's fault
    "Evicted": "evicted by its node",
    "Preempting": "preempted by a critical pod of its node",
    "Preempted": "preempted",
    "Shutdown": "its node is being shut down",
    "NodeShutdown": "its node is being shut down",
    "Terminated": "its node is being shut down",
    "NodeLost": "its node was lost",
    "NodeAffinity": "its node refused it: the node's labels have changed",
    "UnexpectedAdmissionError": "its node refused it",
    "TopologyAffinityError": "its node refused it",
}


def learner(
    pod: Json,
    rank: int,
    nodes: Mapping[str, Json],
    now: datetime,
    event: str = "",
    *,
    deleted: bool = False,
    stopped: bool = False,
) -> LearnerObservation:
    """The observation of one learner.

    Args:
        pod: with ``metadata``, ``spec`` and ``status``.
        nodes: the cluster's, by name.
        event: the newest event of the pod that explains something.
        deleted: the object is gone, and ``pod`` is its last version.
        stopped: its run is being stopped, so it is Weft that deletes it.
    """
    where = pod["spec"].get("nodeName") or ""
    ended = terminated(pod)
    phase = (pod.get("status") or {}).get("phase")
    taken = _taken(pod, ended) or ("" if stopped else _deleted(pod, ended, event))
    if ended is not None or phase in ("Succeeded", "Failed"):
        return _exited(pod, rank, ended or {}, taken, where)
    if deleted or (_deletion(pod) and not where):
        reason = taken or "its pod was deleted"
        return LearnerObservation(rank, LearnerState.EXITED, reason=reason, interrupted=not stopped, node=where)
    state = LearnerState.RUNNING if _container(pod).get("running") else LearnerState.STARTING
    if where and (silent := silence(nodes.get(where), where, now)):
        return LearnerObservation(rank, state, reason=silent, node=where, unreachable=True)
    reason = taken or ("" if state is LearnerState.RUNNING else _waits(pod, event))
    return LearnerObservation(rank, state, reason=reason, interrupted=bool(taken), node=where)


def failure(pod: Json, event: str, now: datetime) -> tuple[str, str] | None:
    """Why a learner can never start, with FfDL's code; None: it may."""
    image = _image(pod)
    if ended := terminated(pod):
        message = ended.get("message") or ""
        if ended.get("reason") in _NEVER_RAN:
            if found := _NO_PYTHON.search(message):
                return f"image {image} can't run a learner: it has no program '{found[1] or found[2]}'", BAD_IMAGE
            return f"the container can't be started: {brief(message) or ended['reason']}", BAD_START
        if _NO_AGENT in message and ended.get("exitCode"):
            return f"image {image} can't run a learner: its python has no module weft_trainer", BAD_IMAGE
        return None
    waiting = _container(pod).get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message") or ""
    if reason == "InvalidImageName":
        return f"{image!r} is no valid name of an image", BAD_IMAGE
    since = moment(pod["status"].get("startTime"))
    if since is None or (now - since).total_seconds() < PERSISTS:
        return None
    if reason in _PULL and _HOPELESS.search(f"{reason} {message} {event}"):
        return f"image pull failed: {pull_error(message, event, image)}", BAD_IMAGE
    if reason in _CREATE and not _PASSES.search(message):
        return f"the container can't be started: {brief(message) or reason}", BAD_START
    return None


def is_held(pod: Json) -> bool:
    """Whether Kueue has not admitted the pod yet."""
    gates = pod["spec"].get("schedulingGates") or []
    return any(gate["name"] == names.GATE for gate in gates)


def needs_events(pod: Json, now: datetime) -> bool:
    """Whether the pod itself does not say enough."""
    since = moment(pod["metadata"].get("creationTimestamp"))
    if since is None or (now - since).total_seconds() < 4 or terminated(pod):
        return False
    if _deletion(pod):
        return True
    waiting = _container(pod).get("waiting") or {}
    return (
        pod["status"].get("phase") == "Pending"
        and bool(pod["spec"].get("nodeName"))
        and (waiting.get("reason") in (None, "ContainerCreating", "PodInitializing", *_PULL))
    )


def silence(node: Json | None, name: str, now: datetime) -> str:
    """Why the state of a node's pods is unknown; '' when the node answers."""
    if node is None:
        return f"node {name} is gone"
    ready = next(iter(node["status"]["conditions"]), None)
    if ready is None or ready["status"] == "True":
        return ""
    since = moment(ready.get("lastTransitionTime"))
    if ready["status"] == "False" and since and (now - since).total_seconds() < _SILENT:
        return ""
    at = f" since {since:%Y-%m-%d %H:%M:%S} UTC" if since else ""
    return f"node {name} has not answered{at}" if ready["status"] == "Unknown" else f"node {name} is not ready{at}"


def terminated(pod: Json) -> Json | None:
    """How the learner's process ended, if it did."""
    found: Json | None = _container(pod).get("terminated")
    if found is None and (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        found = _status(pod, "lastState").get("terminated")  # the container has been removed already
    return found


def is_running(pod: Json) -> bool:
    """Whether the learner's process runs, as far as is known."""
    return "running" in _container(pod)


def is_over(pod: Json) -> bool:
    """Whether nothing of a pod runs any more, or ever will."""
    return (
        terminated(pod) is not None
        or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        or bool(_deletion(pod) and not pod["spec"].get("nodeName"))
    )


def moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


# --- the end -----------------------------------------------------------------------------------------------------


def _exited(pod: Json, rank: int, ended: Json, taken: str, where: str) -> LearnerObservation:
    code = ended.get("exitCode")
    if code is not None and code > 128 and code - 128 in set(signal.Signals):
        code = 128 - code
    if ended.get("reason") == "OOMKilled" and code:
        reason = f"killed by the kernel: out of memory{_memory_limit(pod)}"
        return LearnerObservation(rank, LearnerState.EXITED, code, reason, oom=True, node=where)
    reason = taken or _own_end(pod, ended, code)
    return LearnerObservation(
        rank,
        LearnerState.EXITED,
        code,
        reason,
        over_storage=_over_storage(pod),
        interrupted=bool(taken),
        node=where,
    )


def _own_end(pod: Json, ended: Json, code: int | None) -> str:
    """Words for an end that is the learner's own."""
    status = pod.get("status") or {}
    if _over_storage(pod):
        return f"evicted: it used more storage than it has: {brief(status.get('message') or '')}"
    if code and (message := (ended.get("message") or "").strip()):
        return f"{describe_exit(code)}: {brief(message.splitlines()[-1])}"
    if status.get("phase") == "Failed" and not ended:
        for container in status.get("initContainerStatuses") or []:
            if failed := (container.get("state") or {}).get("terminated"):
                why = brief((failed.get("message") or "").strip()) or failed.get("reason") or "no reason given"
                return f"the agent could not be brought into its pod: exit code {failed.get('exitCode')}: {why}"
        return f"its pod failed: {brief(status.get('message') or status.get('reason') or 'no reason given')}"
    return describe_exit(code) if code else ""


def _taken(pod: Json, ended: Json | None) -> str:
    """How the platform took a learner back; '' if it did not."""
    status = pod.get("status") or {}
    message, reason = brief(status.get("message") or ""), status.get("reason") or ""
    if _over_storage(pod):
        return ""
    conditions = {
        condition["type"]: condition for condition in status.get("conditions") or [] if condition["status"] == "True"
    }
    if found := conditions.get("TerminationTarget"):  # Kueue's
        return f"taken back by Kueue: {brief(found.get('message') or found.get('reason') or '')}"
    if found := conditions.get("DisruptionTarget"):
        return _disruption(found, message)
    if status.get("phase") == "Failed":
        if reason.startswith("OutOf"):
            return f"its node refused it: {message or reason}"
        if reason in _PLATFORM:
            return f"{_PLATFORM[reason]}: {message}" if message else _PLATFORM[reason]
    if ended and ended.get("reason") in ("Unknown", "ContainerStatusUnknown"):
        return f"its node {pod['spec'].get('nodeName', '')} was lost for a while, and the learner with it"
    return ""


def _over_storage(pod: Json) -> bool:
    """Whether its node evicted it for what it has written itself, not for being short of room."""
    status = pod.get("status") or {}
    return status.get("reason") == "Evicted" and bool(_OVER_OWN_LIMIT.search(status.get("message") or ""))


def _disruption(condition: Json, message: str) -> str:
    reason = condition.get("reason") or ""
    if reason == "TerminationByKubelet":
        return f"ended by its node: {message or brief(condition.get('message') or '')}"
    what = _DISRUPTIONS.get(reason, "taken back by the cluster")
    return f"{what} ({brief(condition['message'])})" if condition.get("message") else what


def _deleted(pod: Json, ended: Json | None, event: str) -> str:
    """How a learner was deleted without a stop by Weft; '' if it was not deleted, or had ended before."""
    asked = _deletion(pod)
    if asked is None:
        return ""
    finished = moment((ended or {}).get("finishedAt"))
    if finished and finished < asked:
        return ""
    if event.startswith(("Preempted", "TaintManagerEviction")):
        return f"its pod was deleted: {event}"
    return "its pod was deleted by somebody else than Weft: a drained node, or an administrator"


def _deletion(pod: Json) -> datetime | None:
    """When a pod's deletion was asked for."""
    end = moment(pod["metadata"].get("deletionTimestamp"))
    grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
    return end - timedelta(seconds=grace) if end else None


def _memory_limit(pod: Json) -> str:
    containers = [container for container in pod["spec"]["containers"] if container["name"] == names.CONTAINER]
    limit = ((containers[0].get("resources") or {}).get("limits") or {}).get("memory") if containers else None
    return f" (limit {size(quantity.number(limit))})" if limit else ""


# --- the start ---------------------------------------------------------------------------------------------------


def _waits(pod: Json, event: str) -> str:
    """Why a learner has not started yet."""
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False" and not pod["spec"].get("nodeName"):
            if condition.get("reason") == "SchedulingGated":
                return "held back by a scheduling gate"
            return schedule.explain(pod, condition.get("message") or condition.get("reason") or "")
    waiting = _container(pod).get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message") or ""
    if reason in _PULL:
        return f"image pull failed: {pull_error(message, event, _image(pod))}"
    if reason in _CREATE:
        return f"the container can't be started: {brief(message) or reason}"
    return event


def _container(pod: Json) -> Json:
    """The state of the learner's container; while it waits for the agent, the state of the container that brings the
    agent."""
    state: Json = _bringing(pod).get("state") or _status(pod, "state")
    return state


def _bringing(pod: Json) -> Json:
    """The status of the container that is to bring the agent, while it waits for something."""
    if (_status(pod, "state").get("waiting") or {}).get("reason") != "PodInitializing":
        return {}
    statuses: list[Json] = pod["status"].get("initContainerStatuses") or []
    return next((status for status in statuses if (status.get("state") or {}).get("waiting")), {})


def _status(pod: Json, part: str) -> Json:
    """``state`` or ``lastState`` of the learner's container."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    found: Json = next(
        (container.get(part) or {} for container in statuses if container["name"] == names.CONTAINER), {}
    )
    return found


def _image(pod: Json) -> str:
    if bringing := _bringing(pod):
        return str(bringing["image"])
    return next(
        (str(container["image"]) for container in pod["spec"]["containers"] if container["name"] == names.CONTAINER), ""
    )
