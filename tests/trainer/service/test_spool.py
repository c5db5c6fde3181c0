"""The spool of lines and metrics on their way to the API."""

from __future__ import annotations

from pathlib import Path

from weft_trainer.service.spool import Spool


def test_lines_that_a_power_cut_has_taken_are_not_waited_for(tmp_path: Path) -> None:
    """The cursor was on the disk, the lines before it were not."""
    spool = Spool(tmp_path, "an-instance")
    spool.append([b'{"s": "sent"}'])
    assert spool.next_batch()
    spool.done()
    (tmp_path / "000000.jsonl").write_bytes(b"")
    assert Spool(tmp_path, "another").next_batch() is None
