"""Text frames for FfDL's client, which reads 8 KiB at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from weft_api.ffdl.translate import Json

MOST = 8192  # bytes


def text_frames(lines: Iterable[str]) -> Iterator[str]:
    """The lines, each with a newline, as many together as a frame holds; a longer line goes on in the next frame."""
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
    """One object as JSON: the client parses each frame by itself, so one that is too large becomes several."""
    text = json.dumps(data)
    values = list(data["Values"].items())
    if len(text) <= MOST:
        yield text
    elif len(values) > 1:
        for half in (values[: len(values) // 2], values[len(values) // 2 :]):
            yield from metric_frames({**data, "Values": dict(half)})
    elif values and isinstance(values[0][1], str):
        name, value = values[0]
        # In JSON's escapes a character takes up to 12 bytes.
        yield json.dumps({**data, "Values": {name: value[: (MOST - 4096) // 12] + "…"}})
