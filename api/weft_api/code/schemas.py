"""Code bundles on the wire."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict

_SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

Sha256 = Annotated[
    str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the zip's bytes, in lower-case hex.", examples=[_SHA])
]


class CodeView(BaseModel):
    """A code bundle that the server has."""

    model_config = ConfigDict(
        title="Code", json_schema_extra={"examples": [{"sha256": _SHA, "size": 4711, "files": 3}]}
    )

    sha256: str
    size: int
    files: int
