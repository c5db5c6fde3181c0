"""Models and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class Model(ServerValue):
    """A name in the registry. ``latest`` is the highest version's number, ``stages`` says at which version each is.
    ``promotions``, newest first, only from :meth:`Models.get`: {stage, version, user, at}."""

    name: str
    latest: int | None
    versions: int
    stages: Mapping[str, int] = field(default_factory=dict)
    updated_at: datetime | None = None
    promotions: tuple[Json, ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> Model:
        return cls(
            name=str(data["name"]),
            latest=data.get("latest"),
            versions=int(data.get("versions") or 0),
            stages=data.get("stages") or {},
            updated_at=parse_time(data.get("updated_at")),
            promotions=tuple(data.get("promotions") or ()),
            raw=data,
        )


@dataclass(frozen=True)
class ModelVersion(ServerValue):
    """The results of one job as a version of a model. ``files`` holds ``files``, ``bytes`` and ``sha256`` of what was
    registered, ``place`` where it is in a store of the user's own (None: the installation's).
    ``description`` is what the job had at the time of the registration, ``notes`` what users have written down since.
    ``lineage`` and ``children`` only from :meth:`Models.version`."""

    model: str
    version: int
    job: str
    user: str = ""
    stages: tuple[str, ...] = ()
    parent: str | None = None
    files: Json = field(default_factory=dict)
    place: str | None = None
    created_at: datetime | None = None
    description: str = ""
    notes: str = ""
    lineage: Json = field(default_factory=dict)
    children: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """``mnist@3``."""
        return f"{self.model}@{self.version}"

    @classmethod
    def from_json(cls, data: Json) -> ModelVersion:
        return cls(
            model=str(data["model"]),
            version=int(data["version"]),
            job=str(data.get("job") or ""),
            user=str(data.get("user") or ""),
            stages=tuple(data.get("stages") or ()),
            parent=data.get("parent"),
            files=data.get("files") or {},
            place=data.get("place"),
            created_at=parse_time(data.get("created_at")),
            description=str(data.get("description") or ""),
            notes=str(data.get("notes") or ""),
            lineage=data.get("lineage") or {},
            children=tuple(data.get("children") or ()),
            raw=data,
        )
