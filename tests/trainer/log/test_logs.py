"""All output of a program arrives, wherever the program writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
from tests.trainer.agents import Launch
from tests.trainer.api_double import LearnerRecord, Refused
from tests.trainer.conftest import StartApi

from weft_trainer.control import Control
from weft_trainer.log.shipper import LogShipper
from weft_trainer.service.client import ApiClient
from weft_trainer.service.mask import Mask
from weft_trainer.service.reporter import Reporter
from weft_trainer.service.spool import Batch, Spool
from weft_trainer.spec import LogSpec


def test_log_files_of_the_log_folder_are_log(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        "mkdir -p $LOG_DIR/worker; echo from the file >> $LOG_DIR/training-log.txt;"
        "echo from a worker > $LOG_DIR/worker/user_log.txt; echo ignored > $LOG_DIR/other.txt;"
        "printf 'no line feed' >> $LOG_DIR/training-log.txt; echo from stdout"
    )
    assert launch(api).wait() == 0
    lines = api.learners[0].lines
    assert sorted(lines) == ["[worker] from a worker", "from stdout", "from the file", "no line feed"]
    assert api.objects["results/learner-1/training-log.txt"].decode().splitlines() == lines


@pytest.mark.parametrize(("before", "after"), [("first, and long enough", "second"), ("first", "second, and longer")])
def test_a_log_file_that_starts_anew(start_api: StartApi, launch: Launch, before: str, after: str) -> None:
    """Its inode stays the same, and its size says nothing."""
    api = start_api(
        f"log=$LOG_DIR/user_log.txt; echo {before} > $log; while ! [ -e go ]; do sleep 0.02; done; echo {after} > $log"
    )
    agent = launch(api)
    api.wait_for(lambda: bool(api.learners[0].lines))
    (agent.workdir / "model" / "go").touch()
    assert agent.wait() == 0
    assert api.learners[0].lines == [before, after]


def test_a_link_or_a_pipe_is_no_log_file(start_api: StartApi, launch: Launch) -> None:
    """The agent would read its own secrets, or wait for ever."""
    api = start_api(
        "mkfifo $LOG_DIR/user_log.txt; ln -s /proc/self/environ $LOG_DIR/training-log.txt; sleep 1; echo from stdout"
    )
    assert launch(api).wait() == 0
    assert api.learners[0].lines == ["from stdout"]


def test_a_line_arrives_while_the_program_goes_on(start_api: StartApi, launch: Launch) -> None:
    api = start_api("python -c \"print('epoch 1'); input()\" || echo ended; sleep 1000")
    agent = launch(api)
    api.wait_for(lambda: "epoch 1" in api.learners[0].lines)
    api.stop = {"stop": True, "grace_seconds": 0}
    agent.wait()


def test_much_output_in_order(start_api: StartApi, launch: Launch) -> None:
    api = start_api("seq 1 50000")
    assert launch(api).wait() == 0
    assert api.learners[0].lines == [str(number) for number in range(1, 50_001)]
    assert api.problems == []


FLOOD = """
import os, sys
lines = int(sys.argv[1])
block = [b"line %d\\n" % number for number in range(lines)]
for start in range(0, lines, 1000):
    os.write(1, b"".join(block[start : start + 1000]))
os.write(1, b"Traceback: the end\\n")
"""


def test_a_flood_is_counted_kept_in_the_file_and_its_end_is_seen(
    start_api: StartApi, launch: Launch, tmp_path: Path
) -> None:
    flood = tmp_path / "flood.py"
    flood.write_text(FLOOD)
    limits = {"lines_per_second": 1000, "bytes_per_second": 0, "burst_seconds": 5, "file_bytes": 1 << 30}
    api = start_api(f"python {flood} 1000000; echo after", log=limits)
    assert launch(api).wait() == 0
    lines = api.learners[0].lines
    assert lines[-2:] == ["Traceback: the end", "after"]
    assert len(lines) < 200_000
    marker = (
        r"\[weft\] ([\d,]+) lines \(.*\) were left out here: this learner may log 1,000 lines a second; "
        r"training-log.txt, which is stored with the results, has them. The last 20 follow."
    )
    left_out = [re.fullmatch(marker, line) for line in lines]
    markers = [int(found[1].replace(",", "")) for found in left_out if found]
    assert len(lines) - len(markers) + sum(markers) == 1_000_002, "each line is there, or counted"
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert numbers == sorted(set(numbers)), "in order, once"
    whole = api.objects["results/learner-1/training-log.txt"].decode().splitlines()
    assert whole == [*(f"line {number}" for number in range(1_000_000)), "Traceback: the end", "after"]


class _Heard:
    """In the API's place, for the one moment that no real program can be made to hit."""

    pause = 0.0

    def __init__(self) -> None:
        self.lines: list[str] = []

    def logs(self, batch: Batch, instance: str) -> None:
        self.lines += [json.loads(line)["s"] for line in batch.lines]


def test_what_is_left_out_as_the_flood_ends_is_told(tmp_path: Path) -> None:
    heard = _Heard()
    log = LogShipper(
        cast(ApiClient, heard),
        cast(Reporter, heard),
        Control(),
        Spool(tmp_path / "spool", "one"),
        tmp_path / "log",
        LogSpec(),
        Mask([]),
    )
    log.start()
    log.leave_out(b"".join(b"%d\n" % number for number in range(100)))  # as after a flood that is over by now
    assert log.flush(10)
    assert heard.lines[0].startswith("[weft] 80 lines (")
    assert heard.lines[1:] == [str(number) for number in range(80, 100)]


def test_a_full_log_and_a_full_file_say_how_much_is_missing(
    start_api: StartApi, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"file_bytes": 1000, "lines_per_second": 0, "bytes_per_second": 0}
    api = start_api("seq 1 3; while ! [ -e go ]; do sleep 0.02; done; seq 4 5000", log=limits)
    agent = launch(api)
    api.wait_for(lambda: len(api.learners[0].lines) == 3)
    take = api._logs

    def full(rank: int, learner: LearnerRecord, body: dict[str, Any]) -> None:
        if len(body["lines"]) > 1:
            raise Refused(409, "log_full", "it has 100 bytes")
        take(rank, learner, body)

    monkeypatch.setattr(api, "_logs", full)
    (agent.workdir / "model" / "go").touch()
    assert agent.wait() == 0
    marker = "[weft] 4,997 lines of this learner were left out: the job's log is full"
    assert api.learners[0].lines == ["1", "2", "3", marker]
    assert api.problems == []
    whole = api.objects["results/learner-1/training-log.txt"].decode().splitlines()
    assert whole[:3] == ["1", "2", "3"]
    assert whole[-1] == "[weft] this file has reached its limit of 1000 bytes"


def test_whatever_a_program_writes_arrives(start_api: StartApi, launch: Launch) -> None:
    program = (
        "import os; os.write(1, bytes(range(256)) + b'\\n' + b'z' * 1_000_000 + b'\\n');"
        "[os.write(1, b'\\r%d%%' % n) for n in range(101)]; os.write(1, b'\\n\\x1b[31mred\\x1b[0m\\nend')"
    )
    api = start_api(f'python -c "{program}"')
    assert launch(api).wait() == 0
    *binary, long, state, red, end = [line for line in api.learners[0].lines if not re.fullmatch(r"\d\d?%", line)]
    assert "".join(binary).endswith("\ufffd" * 128)
    assert long == "z" * 1_000_000
    assert (state, red, end) == ("100%", "\x1b[31mred\x1b[0m", "end")
