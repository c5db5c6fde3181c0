"""What an agent reads takes as much memory as there is, not as much as a read may take.

A job logs for weeks. If each read makes a large buffer, which then shrinks to what came, the memory between what is
left is lost to fragmentation: an agent grew by half a MiB a minute. `make bench ARGS=soak` measures the whole.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

from weft_trainer.growing import LineFile
from weft_trainer.log.lines import Line
from weft_trainer.log.tail import LogTail
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.program.plan import Process
from weft_trainer.program.processes import Child
from weft_trainer.service.spool import Spool

FEW = 64 * 1024
"""Bytes; every read asks for at most 256 KiB or more."""


class Output:
    """Takes lines, and is never flooded."""

    flooded = False

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, lines: Sequence[Line]) -> None:
        self.lines += [line.text for line in lines]

    def leave_out(self, raw: bytes) -> None:
        raise AssertionError("nothing is left out")

    @property
    def last_lines(self) -> list[str]:
        return self.lines


def peak(act: Callable[[], object]) -> int:
    """The largest amount of memory, in bytes, that ``act`` and other threads took meanwhile."""
    act()  # what only the first call makes, for instance caches of modules
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        act()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_of_the_spool(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "an-instance")

    def send() -> None:
        spool.append([b'{"t": 1, "s": "a line"}'])
        batch = spool.next_batch()
        assert batch
        assert batch.lines == [b'{"t": 1, "s": "a line"}']
        spool.done()

    assert peak(send) < FEW


def test_of_the_file_of_logged_metrics(tmp_path: Path) -> None:
    path = tmp_path / "logged.jsonl"
    file = LineFile(path)

    def read() -> None:
        with path.open("ab") as out:
            out.write(b"a line\n")
        assert file.read(2 << 20) == ([b"a line"], 0)

    assert peak(read) < FEW


def test_of_a_log_file(tmp_path: Path) -> None:
    output = Output()
    tail = LogTail(tmp_path, output)

    def read() -> None:
        with (tmp_path / "user_log.txt").open("ab") as out:
            out.write(b"a line\n")
        tail._read_all()

    assert peak(read) < FEW
    assert output.lines == ["a line", "a line"]


def test_of_the_output_of_a_program(tmp_path: Path) -> None:
    output, watchdog = Output(), Watchdog()
    program = Process(["sh", "-c", "echo a line; sleep 0.2; echo another"])

    def run() -> None:
        Child(program, os.environ, tmp_path, output, lambda: None, watchdog).finish(60)

    try:
        assert peak(run) < FEW
    finally:
        watchdog.end()
    assert output.lines == ["a line", "another"] * 2
