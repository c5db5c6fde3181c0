"""Records of metrics, as every source makes them and as they go to the API."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, Union

from weft_trainer.service.mask import Mask

Value = Union[int, float, str]
NAME_LENGTH = 200
"""Characters of a metric's or a group's name; the rest is cut off."""
_TEXT_LENGTH = 4000
_RECORD_BYTES = 32 * 1024
"""A larger record becomes several."""
_EXACT = 2**53


class Record(NamedTuple):
    """The values of one moment."""

    time: int  # ms since the epoch
    values: Mapping[str, Value]
    group: str = ""
    etimes: Mapping[str, Value] = {}
    """FfDL's axes: ``iteration`` (the step), ``epoch``, ``wall_time``, ``timestamp``."""
    kind: Literal["user", "system"] = "user"
    types: Mapping[str, str] = {}
    """FfDL's type, STRING or JSONSTRING, of each text that came with a type; by the names of values and etimes."""


def encode(record: Record) -> Iterator[bytes]:
    """The JSON objects that the API takes, without values that they can't hold."""
    etimes = _pairs(record.etimes)
    about = {"t": record.time, "kind": record.kind, "group": clean(record.group, NAME_LENGTH)}
    types = {clean(name, NAME_LENGTH): kind for name, kind in record.types.items()}
    head = json.dumps({**about, "types": types} if types else about)
    start = f'{head[:-1]}, "etimes": {{{", ".join(etimes)}}}, "values": {{'.encode()
    pieces: list[bytes] = []
    size = 0
    for pair in _pairs(record.values):
        piece = pair.encode()
        if pieces and size + len(piece) > _RECORD_BYTES:
            yield start + b", ".join(pieces) + b"}}"
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    if pieces:
        yield start + b", ".join(pieces) + b"}}"


def masked(record: Record, mask: Mask) -> Record:
    """The record without secrets in its names and texts."""
    if not mask.finds("\n".join(_texts(record))):
        return record

    def plain(values: Mapping[str, Value]) -> dict[str, Value]:
        return {
            mask.text(name): mask.text(value) if isinstance(value, str) else value for name, value in values.items()
        }

    types = {mask.text(name): kind for name, kind in record.types.items()}
    return record._replace(
        group=mask.text(record.group), values=plain(record.values), etimes=plain(record.etimes), types=types
    )


def _texts(record: Record) -> Iterator[str]:
    yield record.group
    for values in (record.values, record.etimes):
        for name, value in values.items():
            yield name
            if isinstance(value, str):
                yield value


def clean(text: str, most: int) -> str:
    """The text without NUL and halves of surrogates, which neither JSON readers nor Postgres take."""
    return text[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _pairs(values: Mapping[str, Value]) -> list[str]:
    pairs: dict[str, str] = {}
    for name, value in values.items():
        if name:
            pairs[clean(name, NAME_LENGTH)] = _plain(value)
    return [f"{json.dumps(name)}: {value}" for name, value in pairs.items()]


def _plain(value: Value) -> str:
    if isinstance(value, str):
        return json.dumps(clean(value, _TEXT_LENGTH))
    if isinstance(value, int) and abs(value) <= _EXACT:
        return str(int(value))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return repr(number) if math.isfinite(number) else f'"{number}"'  # JSON has neither NaN nor infinity
