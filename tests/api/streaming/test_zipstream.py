"""Zips that are made while they are sent."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime

import pytest

from weft_api.streaming.zipstream import Entry, stream_zip


def test_a_zip_of_any_size_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size fields have 64 bits where that is needed, and its data is not collected in memory."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 20 << 20)  # else 4 GiB would have to be made here
    piece = bytes(1 << 20)
    pieces = 40
    entry = Entry("big", datetime(1970, 1, 1, tzinfo=UTC), lambda: (piece for _ in range(pieces)))
    total, largest, tail = 0, 0, b""
    for part in stream_zip([entry]):
        total += len(part)
        largest = max(largest, len(part))
        tail = (tail + part)[-200:]
    assert total > pieces * len(piece)
    assert largest < 2 * len(piece)
    assert b"PK\x06\x06" in tail, "the zip64 end of the directory"
