"""Reads the scalars from TensorBoard's event files, which are TFRecords of ``Event`` messages.

This module knows only as much of the two formats as that takes, so that no learner needs TensorBoard's packages. A
record is ``length (8 bytes), checksum (4), message, checksum (4)``. These fields of the messages are read:

    Event          1 wall_time: double   2 step: int64   5 summary: Summary
    Summary        1 value: Value, repeated
    Value          1 tag: string   2 simple_value: float   8 tensor: TensorProto   9 metadata: SummaryMetadata
    TensorProto    1 dtype   2 tensor_shape   4 tensor_content   5 … 17 values, by type
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

_CHUNK = 4 << 20
"""A record that is longer (an image, a graph) holds no scalars."""
_LONGEST = 1 << 31
_HEADER = 12
_FRAME = 16

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_DOUBLE, _BFLOAT16, _HALF = 2, 14, 19
_CONTENT = {1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", 19: "e", 22: "I", 23: "Q"}
"""TensorFlow's types as ``struct`` calls them; a bfloat16 is handled apart."""
_FLOAT_VAL, _DOUBLE_VAL, _HALF_VAL = 5, 6, 13
_UINT64_VAL = 17
_INTEGER_VALS = {7, 10, 11, 16, _UINT64_VAL}


class Event(NamedTuple):
    wall_time: float  # seconds since the epoch
    step: int
    scalars: dict[str, float]


class Broken(Exception):
    """The file is not one of TensorBoard's, or it is damaged. Nothing more can be read from it."""


class EventFile:
    """The position in one file. A record that is not complete yet is read later."""

    def __init__(self) -> None:
        self.offset = 0

    def read(self, file: int, most: int) -> list[Event]:
        """The events that have come since the last read, of at most ``most`` records. Raises: Broken, OSError."""
        size = os.fstat(file).st_size
        if size < self.offset:
            self.offset = 0  # the file was begun anew
        events: list[Event] = []
        records = 0
        while records < most:
            data = os.pread(file, min(_CHUNK, size - self.offset), self.offset)
            before = self.offset
            for message in self._messages(data, most - records):
                records += 1
                event = parse_event(message)
                if event is not None:
                    events.append(event)
            if self.offset == before and not self._skip(data, size):
                break
        return events

    def _messages(self, data: bytes, most: int) -> Iterator[bytes]:
        """The complete records in ``data``, which begins at the offset. The offset moves behind each record."""
        at = 0
        while most > 0 and at + _HEADER <= len(data):
            end = at + _FRAME + _length(data, at)
            if end == at + _FRAME and not any(data[at : at + _HEADER]):
                return  # zeros: space that the file system has allocated already
            if end > len(data):
                return
            self.offset += end - at
            yield data[at + _HEADER : end - 4]
            at, most = end, most - 1

    def _skip(self, data: bytes, size: int) -> bool:
        """Pass over a record that is too long for a chunk. Returns whether the record was complete."""
        if len(data) < _CHUNK:
            return False
        end = self.offset + _FRAME + _length(data, 0)
        if end > size:
            return False
        self.offset = end
        return True


def _length(data: bytes, at: int) -> int:
    length: int = struct.unpack_from("<Q", data, at)[0]
    if length > _LONGEST:
        raise Broken
    return length


def parse_event(message: bytes) -> Event | None:
    """None: the message holds no scalars, or can't be read."""
    wall_time, step = 0.0, 0
    scalars: dict[str, float] = {}
    try:
        for number, kind, value in _fields(message):
            if number == 1 and kind == _FIXED64:
                wall_time = struct.unpack("<d", value)[0]
            elif number == 2 and kind == _VARINT:
                step = value - (1 << 64) if value >> 63 else value
            elif number == 5 and kind == _BYTES:
                for inner, inner_kind, scalar in _fields(value):
                    if inner == 1 and inner_kind == _BYTES:
                        scalars.update(_scalar(scalar))
    except (ValueError, IndexError, struct.error):
        return None
    return Event(wall_time, step, scalars) if scalars else None


def _scalar(message: bytes) -> Iterator[tuple[str, float]]:
    tag, found = "", None
    for number, kind, value in _fields(message):
        if number == 1 and kind == _BYTES:
            tag = value.decode("utf-8", "replace")
        elif number == 2 and kind == _FIXED32:
            found = shortest(struct.unpack("<f", value)[0])
        elif number == 8 and kind == _BYTES:
            found = _tensor(value)
    if tag and found is not None:
        yield tag, found


def _tensor(message: bytes) -> float | None:
    """The number that a tensor of rank 0 holds; None: it holds something else."""
    dtype = 0
    content: bytes = b""
    numbers: list[float] = []
    for number, kind, value in _fields(message):
        if number == 1 and kind == _VARINT:
            dtype = value
        elif number == 2 and kind == _BYTES:
            if any(inner in (2, 3) for inner, _, _ in _fields(value)):  # it has dimensions, or an unknown rank
                return None
        elif number == 4 and kind == _BYTES:
            content = value
        elif number == _FLOAT_VAL:
            numbers += [shortest(single) for single in _floats(kind, value, "f")]
        elif number == _DOUBLE_VAL:
            numbers += _floats(kind, value, "d")
        elif number in _INTEGER_VALS:
            signed = number != _UINT64_VAL
            numbers += [bits - (1 << 64) if signed and bits >> 63 else bits for bits in _varints(kind, value)]
        elif number == _HALF_VAL:
            numbers += [_half(bits, dtype) for bits in _varints(kind, value)]
    if content:
        return _content(content, dtype)
    return numbers[0] if len(numbers) == 1 else None


def _content(content: bytes, dtype: int) -> float | None:
    if dtype == _BFLOAT16 and len(content) == 2:
        return _half(int.from_bytes(content, "little"), dtype)
    form = _CONTENT.get(dtype)
    if form is None or struct.calcsize(form) != len(content):
        return None
    number = float(struct.unpack("<" + form, content)[0])
    return shortest(number) if form == "f" else number


def _floats(kind: int, value: bytes, form: str) -> list[float]:
    if kind == (_FIXED32 if form == "f" else _FIXED64):
        return list(struct.unpack("<" + form, value))
    return [number for (number,) in struct.iter_unpack("<" + form, value)]


def _varints(kind: int, value: int | bytes) -> list[int]:
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while kind == _BYTES and at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


def _half(bits: int, dtype: int) -> float:
    if dtype == _BFLOAT16:
        number: float = struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF) << 16))[0]
    else:
        number = struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0]
    return number


def shortest(number: float) -> float:
    """A number of single precision in its shortest form: 0.1, not 0.10000000149011612."""
    if not math.isfinite(number):
        return number
    for digits in (6, 7, 8):
        short = float(f"{number:.{digits}g}")
        if struct.pack("<d", number) == struct.pack("<d", struct.unpack("<f", struct.pack("<f", short))[0]):
            return short
    return number


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a protobuf message as (number, wire type, int or bytes). Raises: ValueError, IndexError."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("a wire type that is not used any more")
        if at + length > len(data):
            raise ValueError("cut off")
        yield number, kind, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number that is too long")
