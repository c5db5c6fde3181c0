"""What the server tells about a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from weft.models import Attempt, Framework, Json, parse_time
from weft.resources.metrics import MetricValues


@dataclass(frozen=True)
class JobRecord:
    """A job in the state of an answer of the server."""

    id: str
    name: str
    state: str
    desired: str
    reason: str
    error_code: str | None
    condition: str | None
    description: str
    labels: Mapping[str, str]
    engine: str
    priority: int
    framework: Framework
    learners: int
    resources: Mapping[str, Any]
    attempt: int
    retries: int
    failures: int
    code_sha256: str | None
    rerun_of: str | None
    checkpoint_of: Json | None
    user: str | None
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    queue_position: int | None
    metric_values: Mapping[str, MetricValues]
    params: Mapping[str, str]
    attempts: tuple[Attempt, ...]
    manifest: Mapping[str, Any]
    raw: Json = field(repr=False, compare=False)


def read_record(data: Json) -> JobRecord:
    framework = data.get("framework") or {}
    return JobRecord(
        id=str(data["id"]),
        name=str(data.get("name") or ""),
        state=str(data.get("state") or ""),
        desired=str(data.get("desired") or ""),
        reason=str(data.get("reason") or ""),
        error_code=data.get("error_code"),
        condition=data.get("condition"),
        description=str(data.get("description") or ""),
        labels=data.get("labels") or {},
        engine=str(data.get("engine") or ""),
        priority=int(data.get("priority") or 0),
        framework=Framework(*(str(framework.get(k) or "") for k in ("name", "version", "launcher", "command"))),
        learners=int(data.get("learners") or 1),
        resources=data.get("resources") or {},
        attempt=int(data.get("attempt") or 0),
        retries=int(data.get("retries") or 0),
        failures=int(data.get("failures") or 0),
        code_sha256=data.get("code_sha256"),
        rerun_of=data.get("rerun_of"),
        checkpoint_of=data.get("checkpoint_of"),
        user=data.get("user"),
        created_at=parse_time(data.get("created_at")),
        started_at=parse_time(data.get("started_at")),
        ended_at=parse_time(data.get("ended_at")),
        queue_position=data.get("queue_position"),
        metric_values={name: MetricValues.from_json(values) for name, values in (data.get("metrics") or {}).items()},
        params=data.get("params") or {},
        attempts=tuple(Attempt.from_json(attempt) for attempt in data.get("attempts") or ()),
        manifest=data.get("manifest") or {},
        raw=data,
    )
