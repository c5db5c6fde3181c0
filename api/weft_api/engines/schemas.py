"""Engines and the catalogue on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_ENGINE: dict[str, Any] = {
    "name": "local",
    "type": "local",
    "default": True,
    "capacity": {"cpus": 8, "gpus": 0, "memory": 33_554_432_000},
    "free": {"cpus": 6, "gpus": 0, "memory": 31_406_948_352},
    "seen_at": "2026-01-31T08:21:44Z",
    "unreachable_since": None,
    "error": None,
    "queued": 1,
    "running": 2,
}


class Amounts(BaseModel):
    cpus: float
    gpus: int
    memory: int = Field(description="Bytes.")


class EngineView(BaseModel):
    model_config = ConfigDict(title="Engine", json_schema_extra={"examples": [_ENGINE]})

    name: str
    type: str
    default: bool
    capacity: Amounts | None = Field(description="Null until a worker has seen it.")
    free: Amounts | None = Field(description="What open attempts leave of the capacity.")
    seen_at: datetime | None
    unreachable_since: datetime | None
    error: str | None
    queued: int = Field(description="Jobs waiting for it, of all projects.")
    running: int = Field(description="Open attempts on it, of all projects.")


class EngineList(BaseModel):
    engines: list[EngineView]


class ImageView(BaseModel):
    model_config = ConfigDict(title="Image")

    reference: str
    name: str
    version: str
    frameworks: list[str]
    launchers: list[str]
    default_launcher: str


class CatalogueView(BaseModel):
    model_config = ConfigDict(
        title="Catalogue",
        json_schema_extra={
            "examples": [
                {
                    "images": [
                        {
                            "reference": "horovod:0.28.1-torch2.13",
                            "name": "horovod",
                            "version": "0.28.1-torch2.13",
                            "frameworks": ["horovod"],
                            "launchers": ["horovod", "none"],
                            "default_launcher": "horovod",
                        }
                    ],
                    "aliases": {"tensorflow:1.5.0-py3": "tensorflow:2.21.0"},
                }
            ]
        },
    )

    images: list[ImageView]
    aliases: dict[str, str] = Field(description="Versions that manifests may ask for, and what serves them.")
