"""Reading and validating JSON bodies outside of FastAPI, for calls that wait in a queue first."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from weft_api.http.problems import invalid

Model = TypeVar("Model", bound=BaseModel)


def parse_json(data: bytes) -> Any:
    """The JSON in ``data``. Bytes that are not UTF-8 are replaced: user programs print anything. Raises Problem."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise invalid("body", "not valid JSON") from None


def validated(model: type[Model], value: Any) -> Model:
    """``value`` as a ``model``. Raises RequestValidationError, as FastAPI does for a body."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise RequestValidationError([{**detail, "loc": ("body", *detail["loc"])} for detail in details]) from None
