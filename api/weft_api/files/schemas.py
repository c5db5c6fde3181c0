"""Files of a job's code on the wire."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class CodeFile(BaseModel):
    path: str
    size: int = Field(description="Unpacked size in bytes.")
    crc32: str = Field(
        default="", description="The CRC-32 of the content, as 8 hexadecimal digits: files that differ have another."
    )


class CodeFiles(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"files": [{"path": "train.py", "size": 2048, "crc32": "3610a686"}], "complete": True}]
        }
    )

    files: list[CodeFile]
    complete: bool = Field(description="False if there are more files than this list contains.")
