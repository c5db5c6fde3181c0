"""Lists of files in a store, on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_FILE: dict[str, Any] = {"path": "model.pt", "size": 4711004, "modified": "2026-01-31T08:21:44Z"}


class FileView(BaseModel):
    model_config = ConfigDict(title="File", json_schema_extra={"examples": [_FILE]})

    path: str
    size: int
    modified: datetime


class FileList(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"files": [_FILE], "complete": True}]})

    files: list[FileView]
    complete: bool = Field(description="False if there are more files than this list contains.")
