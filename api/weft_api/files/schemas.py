"""Files of a job's code on the wire."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class CodeFile(BaseModel):
    path: str
    size: int = Field(description="Unpacked size in bytes.")


class CodeFiles(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"files": [{"path": "train.py", "size": 2048}], "complete": True}]}
    )

    files: list[CodeFile]
    complete: bool = Field(description="False if there are more files than this list contains.")
