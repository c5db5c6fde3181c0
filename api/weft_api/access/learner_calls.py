"""The fields that all calls of learners have. Texts come from user programs and may contain anything."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LATEST = 253_402_300_799_999
"""Milliseconds since the epoch: the end of the year 9999."""
_INSTANCE = "0b0f7f0e-6a0e-4a51-8f0f-2f8f4e1a3c55"


def _storable(value: Any) -> Any:
    """Replace what Postgres and JSON can't hold: NUL, and halves of surrogate pairs."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return value


Storable = Annotated[str, BeforeValidator(_storable)]
Rank = Annotated[
    int, Field(ge=0, le=100_000, description="The learner's rank, from 0. LEARNER_ID is the rank plus 1.", examples=[0])
]


def call_examples(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [{"rank": 0, "instance": _INSTANCE, **fields}]})


class LearnerCall(BaseModel):
    rank: Rank
    instance: str = Field(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="A UUID that the agent makes when it starts. It distinguishes a repeated call from a call of "
        "another agent.",
        examples=[_INSTANCE],
    )
