"""Weft's client library and command line.

    >>> import weft
    >>> job = weft.Client().train("manifest.yml", "code/").wait()
    >>> job.download_trained_model("model.zip")

The names below are loaded on first use, so that ``import weft`` costs nothing by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft import errors as errors
    from weft.client import Client as Client
    from weft.errors import WeftError as WeftError
    from weft.function import RemoteFunction as RemoteFunction
    from weft.function import job as job
    from weft.models import (
        Attempt as Attempt,
    )
    from weft.models import (
        Datastore as Datastore,
    )
    from weft.models import (
        Engine as Engine,
    )
    from weft.models import (
        EngineNode as EngineNode,
    )
    from weft.models import (
        Event as Event,
    )
    from weft.models import (
        FileInfo as FileInfo,
    )
    from weft.models import (
        LearnerStatus as LearnerStatus,
    )
    from weft.models import (
        LogLine as LogLine,
    )
    from weft.models import (
        Model as Model,
    )
    from weft.models import (
        ModelVersion as ModelVersion,
    )
    from weft.models import (
        ObjectInfo as ObjectInfo,
    )
    from weft.models import (
        Problem as Problem,
    )
    from weft.models import (
        Schedule as Schedule,
    )
    from weft.models import (
        Secret as Secret,
    )
    from weft.models import (
        Start as Start,
    )
    from weft.models import (
        SweepInfo as SweepInfo,
    )
    from weft.models import (
        Token as Token,
    )
    from weft.models import (
        Trial as Trial,
    )
    from weft.models import (
        Usage as Usage,
    )
    from weft.models import (
        View as View,
    )
    from weft.models import (
        WaitingJob as WaitingJob,
    )
    from weft.resources.jobs import Job as Job
    from weft.workers import WorkersError as WorkersError
    from weft.workers import WorkersTimeout as WorkersTimeout
    from weft.workers import await_workers as await_workers
    from weft.workers import launch_workers as launch_workers
    from weft.workers import list_workers as list_workers
    from weft.workers import stop_workers as stop_workers

_MODELS = (
    "Attempt",
    "Datastore",
    "Engine",
    "EngineNode",
    "Event",
    "FileInfo",
    "LearnerStatus",
    "LogLine",
    "Model",
    "ModelVersion",
    "ObjectInfo",
    "Problem",
    "Schedule",
    "Secret",
    "Start",
    "SweepInfo",
    "Token",
    "Trial",
    "Usage",
    "View",
    "WaitingJob",
)
_WORKERS = ("WorkersError", "WorkersTimeout", "await_workers", "launch_workers", "list_workers", "stop_workers")
_HOMES = {
    "Client": "weft.client",
    "Job": "weft.resources.jobs",
    "RemoteFunction": "weft.function",
    "WeftError": "weft.errors",
    "job": "weft.function",
    **dict.fromkeys(_MODELS, "weft.models"),
    **dict.fromkeys(_WORKERS, "weft.workers"),
}

__all__ = ["Client", "Job", "RemoteFunction", "WeftError", "errors", "job", *_MODELS, *_WORKERS]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("weft.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
