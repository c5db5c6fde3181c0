"""What waits in a lane (:mod:`weft_api.learner.lanes`) is read where its turn has come, not by the framework."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from weft_api.problems import invalid

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Taken:
    """Of a call whose content its job has, now or since before."""

    job_id: str
    attempt: int


def parsed_json(data: bytes) -> Any:
    """What user programs print is not always UTF-8. Raises Problem."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise invalid("body", "not valid JSON") from None


def checked(model: type[Model], value: Any) -> Model:
    """Raises RequestValidationError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in details]) from None
