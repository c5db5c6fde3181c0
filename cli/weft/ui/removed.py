"""Words for the data of a job that the project no longer keeps."""

from __future__ import annotations

from weft.models.base import parse_time
from weft.resources.jobs import Job
from weft.ui.times import moment

_NAMES = {"logs": "log", "metrics": "metrics", "results": "results and checkpoints", "events": "events"}


def gone(job: Job, kind: str) -> str | None:
    """``its log was removed on …: the project no longer keeps it``; None: it was not removed.

    Args:
        kind: ``logs``, ``metrics``, ``results`` or ``events``.
    """
    at = (job.raw.get("removed") or {}).get(kind)
    if at is None:
        return None
    verb, it = ("was", "it") if kind == "logs" else ("were", "them")
    return f"its {_NAMES[kind]} {verb} removed on {moment(parse_time(at))}: the project no longer keeps {it}"


def all_gone(job: Job) -> str:
    """``log, metrics``: the data of a job that is gone."""
    return ", ".join(_NAMES[kind] for kind in _NAMES if kind in (job.raw.get("removed") or {}))
