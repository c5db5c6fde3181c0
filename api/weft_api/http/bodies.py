"""Bodies that routes read themselves: how long they may be, and their validation outside of FastAPI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.types import Scope

from weft_api.http.problems import invalid

Model = TypeVar("Model", bound=BaseModel)

MIB: Final = 1 << 20


@dataclass(frozen=True)
class BodyLimit:
    """The most bytes that a body may have, and the name of the body in the refusal."""

    size: int = MIB
    what: str = "the body of this request"


def body_limit(scope: Scope) -> BodyLimit:
    """The limit of a request."""
    limit: BodyLimit = scope.get("state", {}).get("body_limit", BodyLimit())
    return limit


def allow(request: Request, size: int, what: str) -> None:
    """Let the body have ``size`` bytes instead of 1 MiB. A route calls this before it reads the body."""
    request.state.body_limit = BodyLimit(size, what)


async def read(request: Request, size: int, what: str) -> bytes:
    """A body of at most ``size`` bytes."""
    allow(request, size, what)
    return await request.body()


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
