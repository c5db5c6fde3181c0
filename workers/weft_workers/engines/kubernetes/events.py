"""Picks the event of a pod that explains its state. Pure functions."""

from __future__ import annotations

import re
from typing import Any

from weft_workers.engines.kubernetes.errors import brief

Json = dict[str, Any]

_SAYS_NOTHING = re.compile(r"(Error: )?\w*")
_OUTDATED = {
    "BackOff",  # the pod's own status says it, with the cause
    "FailedScheduling",  # events are read of pods that have a node
    "ErrWorkloadCompose",  # Kueue had not seen the whole group yet
}


def say(events: list[Json]) -> str:
    """The most telling event of a pod that has a node: the newest warning, else the newest that explains a wait."""
    events = [event for event in events if not _SAYS_NOTHING.fullmatch(event.get("message") or "")]
    # Volumes and network are there before an image is pulled: what failed until then is over. A pull is tried again.
    pulled = _newest(events, "Pulled")
    pulling = max(pulled, _newest(events, "Pulling"))
    told = [event for event in events if _warns(event)]
    told = [event for event in told if _seen(event) >= (pulled if event.get("reason") == "Failed" else pulling)]
    told = told or [
        event for event in events if event.get("reason") in ("Pulling", "Preempted", "TaintManagerEviction")
    ]
    if not told:
        return ""
    newest = max(told, key=_seen)
    if newest["reason"] == "Pulling":
        return f"pulling its image {newest.get('message', '').rpartition(' ')[2].strip(chr(34))}"
    return f"{newest['reason']}: {brief(newest.get('message') or '')}"


def _warns(event: Json) -> bool:
    by = event.get("reportingComponent") or (event.get("source") or {}).get("component") or ""
    return event.get("type") == "Warning" and event.get("reason") not in _OUTDATED and "kueue" not in by


def _newest(events: list[Json], reason: str) -> str:
    return max((_seen(event) for event in events if event.get("reason") == reason), default="")


def _seen(event: Json) -> str:
    """When an event was last seen."""
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return str(last or event.get("eventTime") or "")
