"""Saved views on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

_VIEW: dict[str, Any] = {
    "name": "Failed this week",
    "query": "state=FAILED&since=7d",
    "user": "ada",
    "updated_at": "2026-01-31T08:00:00Z",
}

ViewName = Annotated[
    str,
    Path(
        pattern=r"^[^/\x00-\x1f\x7f]{1,80}$",
        description="Up to 80 printable characters, without a slash.",
        examples=["Failed this week"],
    ),
]


class ViewBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"query": _VIEW["query"]}]})

    query: str = Field(
        max_length=4000,
        pattern=r"^[^\x00-\x20#?]*$",
        description="The query of the list's URL in the dashboard, without the `?`: filters, order and columns.",
    )


class ViewView(BaseModel):
    model_config = ConfigDict(title="View", json_schema_extra={"examples": [_VIEW]})

    name: str
    query: str
    user: str = Field(description="The user who saved the view last.")
    updated_at: datetime


class ViewList(BaseModel):
    views: list[ViewView]
