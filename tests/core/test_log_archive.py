"""The archive's format: written chunks are read back, joined or not, and damage is reported."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_core.log_archive import ArchivedChunk, Damaged, ObjectWriter, pack_times, read_frame, unpack_times

TIMES = st.lists(st.integers(0, 253_402_300_799_999), min_size=1, max_size=30)
CHUNKS = st.lists(st.tuples(st.integers(0, 2), TIMES, st.binary(max_size=40)), min_size=1, max_size=20)


def archived(chunks: list[tuple[int, list[int], bytes]]) -> list[ArchivedChunk]:
    found, line = [], 7
    for rank, times, text in chunks:
        body = (text.replace(b"\n", b"") + b"\n") * len(times)
        found.append(ArchivedChunk(line, len(times), 1, rank, body, pack_times(times)))
        line += len(times)
    return found


def lines(some: list[ArchivedChunk]) -> list[tuple[int, int, int, bytes]]:
    return [
        (number, chunk.rank, time, text)
        for chunk in some
        for number, (time, text) in enumerate(
            zip(unpack_times(chunk.times), chunk.body.split(b"\n")[:-1], strict=True), chunk.first_line
        )
    ]


@given(st.lists(CHUNKS, min_size=1, max_size=3))
def test_each_frame_of_an_object_can_be_read_alone(frames: list[list[tuple[int, list[int], bytes]]]) -> None:
    writer = ObjectWriter()
    written = [(archived(chunks), writer.add(archived(chunks))) for chunks in frames]
    for some, info in written:
        read = read_frame(bytes(writer.data[info.start : info.start + info.size]))
        assert lines(read) == lines(some)
        assert (info.first_line, info.lines) == (7, sum(chunk.lines for chunk in some))
        assert info.ranks == sorted({chunk.rank for chunk in some})
        assert all(before.rank != after.rank for before, after in pairwise(read)), "joined"


def test_a_damaged_frame_is_no_frame() -> None:
    writer = ObjectWriter()
    writer.add(archived([(0, [1, 2, 3], b"text")]))
    for bad in (b"", bytes(writer.data[:-3]), bytes(writer.data[:20]) + b"\xff" + bytes(writer.data[21:])):
        with pytest.raises(Damaged):
            read_frame(bad)
