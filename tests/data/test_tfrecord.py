"""TFRecord's framing and tf.train.Example's encoding. TensorFlow itself reads what is written in tests/e2e."""

from __future__ import annotations

import io
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_data.tfrecord import BrokenRecord, example, features, framed, masked_crc, records

# tf.io.TFRecordWriter(path).write(b"weft") and tf.train.Example(…).SerializeToString(), by TensorFlow 2.21.
WEFT_RECORD = "04000000000000004245520477656674b7f7298a"
CLASS_300 = "0a110a0f0a05636c61737312061a040a02ac02"
THREE_FEATURES = (
    "0a400a190a05636c61737312101a0e0a0cffffffffffffffffff01ac020a0f0a05696d61676512060a040a02ffd8"
    "0a120a06776569676874120812060a040000003f"
)


def test_a_record_as_tensorflow_writes_it() -> None:
    assert framed(b"weft").hex() == WEFT_RECORD
    assert example({"class": 300}).hex() == CLASS_300
    assert features(bytes.fromhex(THREE_FEATURES)) == {"class": [-1, 300], "image": [b"\xff\xd8"], "weight": []}


def test_the_checksum_is_castagnolis_masked() -> None:
    # RFC 3720, B.4: 32 zero bytes have CRC-32C 0x8a9136aa.
    crc = 0x8A9136AA
    assert masked_crc(bytes(32)) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % (1 << 32)


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_records_come_back(contents: list[bytes]) -> None:
    file = io.BytesIO(b"".join(map(framed, contents)))
    found = list(records(file))
    assert [record.content for record in found] == contents
    assert [file.getvalue()[record.offset : record.offset + len(record.content)] for record in found] == contents


@given(st.binary(min_size=1, max_size=60), st.data())
def test_one_wrong_bit_is_noticed(content: bytes, data: st.DataObject) -> None:
    whole = bytearray(framed(content) + framed(b"next"))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BrokenRecord):
        list(records(io.BytesIO(bytes(whole))))


@given(st.binary(max_size=60), st.integers(1, 15))
def test_a_cut_is_noticed(content: bytes, cut: int) -> None:
    with pytest.raises(BrokenRecord, match="ends in the middle of the record at byte 0"):
        list(records(io.BytesIO(framed(content)[:-cut])))


VALUES = st.one_of(st.binary(max_size=400), st.integers(-(1 << 63), (1 << 63) - 1))


@given(st.dictionaries(st.text(max_size=20), VALUES, max_size=5))
def test_examples_come_back(given_features: dict[str, bytes | int]) -> None:
    assert features(example(given_features)) == {name: [value] for name, value in given_features.items()}


def test_numbers_that_are_not_packed() -> None:
    # The same message as protobuf 2 wrote it: each number with its key.
    numbers = bytes([1 << 3, 5, 1 << 3, 6])
    entry = b"\x0a\x01c\x12" + bytes([len(numbers) + 2, 3 << 3 | 2, len(numbers)]) + numbers
    inner = b"\x0a" + bytes([len(entry)]) + entry
    assert features(b"\x0a" + bytes([len(inner)]) + inner) == {"c": [5, 6]}


@given(st.binary(max_size=80))
def test_any_bytes_are_an_example_or_broken(message: bytes) -> None:
    with suppress(BrokenRecord):
        features(message)
