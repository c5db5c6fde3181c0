"""Profiles of running jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class ProfileFile(ServerValue):
    """A file of a profile; ``size`` in bytes.

    ``kind`` is ``trace`` (of PyTorch's profiler: a Chrome trace in gzip), ``stacks`` (of py-spy: a stack per line, and
    how often it was seen) or ``collectives`` (of PyTorch's flight recorder: a line for each collective that the process
    has entered, with the process group, the collective's number, the operation, and the time in ns). ``process`` is
    ``rank-N``, or ``process-N`` for a process without a rank.
    """

    path: str
    learner: int
    process: str
    kind: str
    size: int

    @classmethod
    def from_json(cls, data: Json) -> ProfileFile:
        return cls(
            path=str(data["path"]),
            learner=int(data.get("learner") or 1),
            process=str(data.get("process") or ""),
            kind=str(data.get("kind") or ""),
            size=int(data.get("size") or 0),
            raw=data,
        )


@dataclass(frozen=True)
class Profile(ServerValue):
    """The files of a profile, of one or several learners.

    ``missing`` says in words which files could not be recorded, and why. Only :meth:`Profiles.record` sets it.
    """

    id: str
    stored: datetime | None
    files: tuple[ProfileFile, ...]
    missing: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> Profile:
        files = tuple(ProfileFile.from_json(file) for file in data.get("files") or ())
        return cls(str(data["id"]), parse_time(data.get("stored")), files, raw=data)
