"""A batch of log lines: as it arrives over the wire, and as it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from weft_api.access.learner_calls import LATEST
from weft_api.http.bodies import parse_json, validated
from weft_api.logs.schemas import MOST_LINES, LogsCall, LogsHead


@dataclass(frozen=True)
class Batch:
    """``body`` is in the form of :class:`weft_api.logs.chunks.Chunk`. ``times`` has an entry for each line."""

    head: LogsHead
    body: bytes
    times: list[int]


class NewChunk(NamedTuple):
    """A :class:`weft_core.store.models.LogChunk` that is to be stored."""

    first_line: int
    rank: int
    lines: int
    body: bytes
    times: bytes
    latest: int


def parse_batch(data: bytes) -> Batch:
    """Parse the JSON of a LogsCall. Raises Problem, RequestValidationError."""
    return read_batch(parse_json(data))


def read_batch(call: Any) -> Batch:
    """Read a LogsCall by hand. Programs do not always print UTF-8, and no line may be lost for that reason.

    Raises:
        RequestValidationError: it is not valid.
    """
    found = _lines(call) if isinstance(call, dict) else None
    if found is not None:
        body, times = found
        return Batch(validated(LogsHead, {name: call[name] for name in call if name != "lines"}), body, times)
    whole = validated(LogsCall, call)
    # A newline inside a line is a line's end too, or the chunk would not split again.
    pieces = [(line.t, text) for line in whole.lines for text in line.s.split("\n")]
    return Batch(whole, "".join(text + "\n" for _, text in pieces).encode(), [time for time, _ in pieces])


def _lines(call: dict[str, Any]) -> tuple[bytes, list[int]] | None:
    """The batch, if it has exactly the form that an agent sends; None for any other form, which needs a closer check. A
    model for each line would take five times as long as all the rest, and there may be 50,000 lines a second."""
    lines = call.get("lines")
    if not isinstance(lines, list) or not 0 < len(lines) <= MOST_LINES:
        return None
    try:
        times = [line["t"] for line in lines]
        text = "\n".join([line["s"] for line in lines])
    except (TypeError, KeyError):
        return None
    if set(map(type, times)) != {int} or min(times) < 0 or max(times) > LATEST:
        return None
    # What Postgres and UTF-8 can't hold: as in schemas.Storable.
    body = text.replace("\0", "\ufffd").encode("utf-8", "replace") + b"\n"
    return (body, times) if body.count(b"\n") == len(times) else None
