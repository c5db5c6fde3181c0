"""TFRecord files and tf.train.Example messages, written and read without TensorFlow.

The framing is that of TensorFlow's ``core/lib/io/record_writer.h``: length (uint64, little endian), masked CRC-32C of
the length, the bytes, masked CRC-32C of the bytes. The message is that of ``core/example/example.proto`` in protobuf's
wire format. Three of its rules are enough here: a field is a varint key (number << 3 | type) and a value; type 2 is a
length followed by that many bytes; repeated numbers are packed into such bytes, or repeat their key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import IO, NamedTuple

import google_crc32c

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER = _LENGTH.size + _CRC.size
FOOTER = _CRC.size
"""Number of bytes of the checksum that follows a record."""
_LARGEST = 1 << 31  # bytes of a protobuf message
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Value = bytes | int


class BrokenRecord(ValueError):
    """A file, record or message is damaged, or is something else."""


class TFRecord(NamedTuple):
    """The bytes of a record, and their place in the file."""

    offset: int
    content: bytes


def masked_crc(content: bytes) -> int:
    """CRC-32C, rotated and shifted as in TensorFlow, so that a checksum of checksums still detects errors."""
    crc = int(google_crc32c.value(content))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def framed(content: bytes) -> bytes:
    """A record in the form that the file has."""
    length = _LENGTH.pack(len(content))
    return b"".join((length, _CRC.pack(masked_crc(length)), content, _CRC.pack(masked_crc(content))))


def records(file: IO[bytes], *, check: bool = True) -> Iterator[TFRecord]:
    """The records of a file, from its current position.

    Args:
        check: check the checksum of the bytes; the checksum of the length is always checked.

    Raises:
        BrokenRecord: a checksum is wrong, or the file ends in the middle of a record.
    """
    offset = file.tell()
    while header := file.read(_HEADER):
        if len(header) < _HEADER:
            raise BrokenRecord(f"it ends in the middle of the record at byte {offset:,}")
        (length,) = _LENGTH.unpack_from(header)
        if _CRC.unpack_from(header, _LENGTH.size)[0] != masked_crc(header[: _LENGTH.size]) or length > _LARGEST:
            raise BrokenRecord(f"the checksum of the length at byte {offset:,} is wrong")
        content = file.read(length)
        footer = file.read(_CRC.size)
        if len(content) < length or len(footer) < _CRC.size:
            raise BrokenRecord(f"it ends in the middle of the record at byte {offset:,}")
        if check and _CRC.unpack(footer)[0] != masked_crc(content):
            raise BrokenRecord(f"the checksum of the record at byte {offset:,} is wrong")
        yield TFRecord(offset + _HEADER, content)
        offset += _HEADER + length + _CRC.size


def intact(stored: bytes) -> bytes:
    """The bytes of a record; ``stored`` holds them and their checksum.

    Raises:
        BrokenRecord: the checksum is wrong.
    """
    content = stored[: -_CRC.size]
    if _CRC.unpack(stored[-_CRC.size :])[0] != masked_crc(content):
        raise BrokenRecord("the checksum of its record is wrong")
    return content


def example(features: Mapping[str, Value]) -> bytes:
    """A serialised tf.train.Example: bytes become a bytes_list, integers an int64_list, each with one value."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = _field(1, _field(1, value))  # Feature.bytes_list, BytesList.value
        else:
            feature = _field(3, _field(1, _varint(value & 0xFFFFFFFFFFFFFFFF)))  # Feature.int64_list, packed
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))  # Features.feature: key, value
    return _field(1, entries)  # Example.features


def features(message: bytes) -> dict[str, list[Value]]:
    """The features of a serialised tf.train.Example, with the values in their lists; float_lists are left out.

    Raises:
        BrokenRecord: the message is not a tf.train.Example.
    """
    found: dict[str, list[Value]] = {}
    for number, _, part in _fields(message):
        if number != 1 or not isinstance(part, bytes):
            continue
        for entry_number, _, entry in _fields(part):
            if entry_number != 1 or not isinstance(entry, bytes):
                continue
            name, values = "", []
            for key, _, value in _fields(entry):
                if key == 1 and isinstance(value, bytes):
                    name = value.decode("utf-8", "replace")
                elif key == 2 and isinstance(value, bytes):
                    values = list(_values(value))
            found[name] = values
    return found


def _values(feature: bytes) -> Iterator[Value]:
    for kind, _, values in _fields(feature):
        if kind not in (1, 3) or not isinstance(values, bytes):
            continue
        for number, _, value in _fields(values):
            if number != 1:
                continue
            if kind == 1 or isinstance(value, int):
                yield value if isinstance(value, bytes) else _signed(value)
                continue
            at = 0
            while at < len(value):
                packed, at = _read_varint(value, at)
                yield _signed(packed)


def _fields(message: bytes) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number, wire = key >> 3, key & 7
        value: Value
        if wire == _VARINT:
            value, at = _read_varint(message, at)
        elif wire in (_BYTES, _FIXED64, _FIXED32):
            if wire == _BYTES:
                length, at = _read_varint(message, at)
            else:
                length = 8 if wire == _FIXED64 else 4
            if at + length > len(message):
                raise BrokenRecord("a tf.train.Example is cut off")
            value, at = message[at : at + length], at + length
        else:
            raise BrokenRecord("the record is not a tf.train.Example")
        yield number, wire, value


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise BrokenRecord("the record is not a tf.train.Example")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
