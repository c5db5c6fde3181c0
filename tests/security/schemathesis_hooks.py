"""Facts that schemathesis can't know: how a zip is sent, and that some calls wait on request."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.serializer("application/zip")
def _as_bytes(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.hook
def before_call(_: Any, case: Any, __: dict[str, Any]) -> None:
    """A wait that is valid is shortened to nothing. Others stay, since they are to be refused."""
    for values in (case.query, case.body):
        if isinstance(values, dict) and "wait" in values and _is_valid_wait(values["wait"]):
            values["wait"] = 0


def _is_valid_wait(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and 0 <= float(value) <= 30
    except (TypeError, ValueError):
        return False
