"""From bytes to lines, and the spool."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.trainer.agents import RUNTIME

from weft_trainer.log.lines import GOES_ON, LONGEST, LineAssembler
from weft_trainer.service.spool import BATCH_LINES, Spool


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


def test_a_line_of_a_megabyte_is_one_and_longer_ones_say_that_they_go_on() -> None:
    megabyte = "x" * 1_000_000
    assert texts(megabyte.encode(), b"\nnext\n") == [megabyte, "next"]
    text = "é" * (LONGEST // 2 * 3) + "x"
    for cut in (LONGEST * 2, 10, 1):
        pieces = texts(b"a" + text.encode()[:-cut], text.encode()[-cut:] + b"\nnext\n", prefix="[0] ")
        assert [piece.startswith("[0] " + GOES_ON) for piece in pieces] == [False, True, True, True, False]
        assert "".join(piece.removeprefix("[0] ").removeprefix(GOES_ON) for piece in pieces[:-1]) == "a" + text
        assert pieces[-1] == "[0] next"


def test_what_is_skipped_comes_back_as_it_was() -> None:
    assembler = LineAssembler("[1] ")
    assembler.feed(b"begun, ")
    lines, between = assembler.skip(b"ended\ntwo\n\xff\n\nlast, ")
    assert ([line.text for line in lines], between) == (["[1] begun, ended"], b"[1] two\n[1] \xff\n[1] \n")
    assert assembler.skip(b"goes on") == ([], b"")
    assert [line.text for line in assembler.feed(b"\n")] == ["[1] last, goes on"]


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
    for _ in range(6):
        spool.append(lines(2, "\1" * LONGEST))  # a control character is six in JSON
        spool.append(lines(20, "x" * 50_000))
    assert spool.waiting > 75 << 20
    sent = drain(spool)
    assert sum(count for _, count in sent) == 6 * 22
    assert {count for _, count in sent} <= {1, 8, 9, 10}
    assert len(list(tmp_path.glob("*.jsonl"))) == 1, "what was sent is deleted"
    assert spool.waiting == 0


def test_a_spool_that_is_given_up_says_how_much_was_in_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "me")
    spool.append(lines(5))
    spool.next_batch()
    spool.done()
    for _ in range(3):
        spool.append(lines(200, "x" * 50_000))
    spool.next_batch()
    assert spool.clear() == 600
    assert list(tmp_path.iterdir()) == [], "a later agent finds nothing to send"


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    script = f"""
import json, resource, signal
from weft_trainer.service.spool import Spool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
spool = Spool(__import__('pathlib').Path({str(tmp_path)!r}), 'me')
spool.append([b'{{"n": 1}}'])
try:
    spool.append([b'x' * 2000])
except OSError:
    spool.append([b'{{"n": 2}}'])
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": str(RUNTIME)})
    batch = Spool(tmp_path, "me").next_batch()
    assert batch is not None
    assert batch.lines == [b'{"n": 1}', b'{"n": 2}']


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
