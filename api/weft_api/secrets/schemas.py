"""Secrets on the wire: values go in and never come out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from weft_api.http.parameters import NAME_PATTERN
from weft_api.http.secret_text import SecretText

# The same names as a manifest may have in `datastore:` and `secrets:`.

SecretName = Annotated[
    str, Path(pattern=NAME_PATTERN, description="Up to 63 letters, digits, '.', '_' and '-'.", examples=["wandb"])
]


class SecretBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"value": "local-4b1c…"}]})

    value: SecretText = Field(max_length=65_536)


class SecretView(BaseModel):
    model_config = ConfigDict(
        title="Secret",
        json_schema_extra={
            "examples": [{"name": "wandb", "created_at": "2026-01-31T08:00:00Z", "updated_at": "2026-01-31T08:00:00Z"}]
        },
    )

    name: str
    created_at: datetime
    updated_at: datetime


class SecretList(BaseModel):
    secrets: list[SecretView]
