"""From bytes to lines, and the spool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_trainer.lines import LONGEST, LineAssembler
from weft_trainer.spool import BATCH_LINES, Spool


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def texts(*chunks: bytes, prefix: str = "") -> list[str]:
    assembler = LineAssembler(prefix, clock=Clock())
    lines = [line for chunk in chunks for line in assembler.feed(chunk)] + assembler.close()
    return [line.text for line in lines]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"on", b"e\n\nt", b"wo"], ["one", "", "two"]),
        ([b"windows\r\nlines\r", b"\n"], ["windows", "lines"]),
        ([b"bad \xff utf-8, nul \0\n"], ["bad \ufffd utf-8, nul \ufffd"]),
        ([b"10%\r20%\r30%\rdone\n"], ["done"]),
        ([b"10%\r20%\r100%\r\n", b"next\n"], ["100%", "next"]),
        ([b"\r10%", b"\r20%", b"\r30%", b"\r100%\n"], ["10%", "100%"]),
        ([b"10%\r20%\r", b"30%\r40%\r", b"\n", b"next\n"], ["10%", "40%", "next"]),
        ([b"10%\r20%\r", b"30%"], ["10%", "30%"]),
        ([], []),
    ],
)
def test_lines(chunks: list[bytes], expected: list[str]) -> None:
    assert texts(*chunks) == expected


def test_a_progress_bar_shows_one_state_a_second() -> None:
    clock = Clock()
    assembler = LineAssembler(clock=clock)
    shown = []
    for step in range(101):
        shown += assembler.feed(b"\r%d%%" % step)
        clock.now += 0.1
    shown += assembler.feed(b"\n")
    assert len(shown) <= 12
    assert shown[-1].text == "100%"


def test_long_lines_are_split_between_characters() -> None:
    text = "é" * (LONGEST // 2 * 3) + "x"
    pieces = texts(b"a" + text.encode() + b"\nnext\n", prefix="[0] ")
    assert all(len(piece.encode()) <= LONGEST + 4 for piece in pieces)
    assert "".join(piece.removeprefix("[0] ") for piece in pieces[:-1]) == "a" + text
    assert pieces[-1] == "[0] next"


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), max_size=50)), st.data())
def test_any_chunking_gives_the_same_lines(lines: list[str], data: st.DataObject) -> None:
    stream = "".join(line + "\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert texts(*chunks) == lines


def lines(count: int, text: str = "line {}") -> list[bytes]:
    return [json.dumps({"t": index, "s": text.format(index)}).encode() for index in range(count)]


def drain(spool: Spool) -> list[tuple[int, int]]:
    sent = []
    while (batch := spool.next_batch()) is not None:
        sent.append((batch.sequence, len(batch.lines)))
        spool.done()
    return sent


def test_spool_batches_by_count(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "me")
    spool.append(lines(BATCH_LINES + 5))
    assert drain(spool) == [(0, BATCH_LINES), (1, 5)]
    spool.append(lines(1))
    assert drain(spool) == [(2, 1)]


def test_spool_batches_by_size_over_several_segments(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "me")
    for _ in range(30):
        spool.append(lines(10, "\1" * LONGEST))  # a control character is six in JSON
    sent = drain(spool)
    assert [sequence for sequence, _ in sent] == list(range(300))
    assert len(list(tmp_path.glob("*.jsonl"))) == 1, "what was sent is deleted"


def test_a_batch_that_was_on_its_way_is_the_same_after_a_crash(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "me")
    spool.append(lines(3))
    before = spool.next_batch()
    spool.append(lines(4))
    again = Spool(tmp_path, "another")
    assert again.instance == "me"
    assert again.next_batch() == before
    again.done()
    rest = again.next_batch()
    assert rest is not None
    assert (rest.sequence, len(rest.lines)) == (1, 4)


def test_a_line_that_was_cut_by_a_crash_is_no_line(tmp_path: Path) -> None:
    Spool(tmp_path, "me").append(lines(2))
    with (tmp_path / "000000.jsonl").open("ab") as file:
        file.write(b'{"t": 1, "s": "hal')
    assert drain(Spool(tmp_path, "me")) == [(0, 2)]
