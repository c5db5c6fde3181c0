"""Text frames for FfDL's client. The client reads 8 KiB at a time, through a buffer of 4 KiB, so it gets a frame that
crosses the end of the buffer in two pieces. Lines survive that; a metric is lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from weft_api.ffdl.translate import Json

MOST = 8192  # bytes
_BUFFER = 4096
_UNIT = 1024
_HEADER = 4


def text_frames(lines: Iterable[str]) -> Iterator[str]:
    """The lines, each with a newline, as many as fit into each frame. A longer line continues in the next frame."""
    held = bytearray()
    for line in lines:
        data = f"{line}\n".encode("utf-8", "replace")
        if held and len(held) + len(data) > MOST:
            yield held.decode()
            held.clear()
        while len(data) > MOST:
            cut = MOST
            while data[cut] & 0xC0 == 0x80:  # inside a character
                cut -= 1
            yield data[:cut].decode()
            data = data[cut:]
        held += data
    if held:
        yield held.decode()


def metric_frames(data: Json) -> Iterator[str]:
    """An object as JSON. The client parses each frame on its own, so an object that is too large becomes several."""
    text = json.dumps(data)
    values = list(data["Values"].items())
    if len(text) <= _BUFFER - _HEADER:
        yield _filled(text)
    elif len(values) > 1:
        for half in (values[: len(values) // 2], values[len(values) // 2 :]):
            yield from metric_frames({**data, "Values": dict(half)})
    elif values and isinstance(values[0][1], str):
        name, value = values[0]
        # In JSON's escapes a character takes up to 12 bytes.
        yield _filled(json.dumps({**data, "Values": {name: value[: _BUFFER // 24] + "…"}}))


def _filled(text: str) -> str:
    """Pad the text with leading spaces, which the client skips, so that consecutive frames end where the buffer ends.
    The size of a frame divides the size of the buffer, and is the same for all frames except unusually large ones."""
    size = _UNIT
    while size < len(text) + _HEADER:
        size *= 2
    return text.rjust(size - _HEADER)
