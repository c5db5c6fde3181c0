"""Verdicts on gangs of PyTorch that really hang, from what the agent reads of their processes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.environments import FIRST_RUN
from tests.trainer.program.gangs import SECONDS, Gangs, verdicts, without_lines, write

from weft_core.hangs.report import Report
from weft_core.hangs.verdict import judge

LIVE = ["skipped", "operations", "stopped", "loader_worker", "debugger", "start"]
"""The gangs that run in each test; to read all of them takes half a minute of CPU."""
VERDICTS = verdicts("")


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[Gangs]:
    started = Gangs(tmp_path, list(VERDICTS) if os.environ.get("WRITE_HANGS") else LIVE)
    yield started
    started.end()


@pytest.mark.timeout(FIRST_RUN)
def test_each_hang_gets_its_verdict(gangs: Gangs) -> None:
    gangs.hang()
    wrong = dict.fromkeys(gangs.pids, "")
    kept: dict[str, dict[int, Report]] = {}
    end = time.monotonic() + SECONDS
    while wrong and time.monotonic() < end:  # a rank may be on its way into its hang
        for name in list(wrong):
            kept[name] = gangs.report(name)
            verdict = judge(kept[name], {})
            wrong[name] = verdict.text if verdict else "none"
            if without_lines(wrong[name]) == without_lines(VERDICTS[name]):
                del wrong[name]
    if os.environ.get("WRITE_HANGS"):
        write("", kept)
        sys.stdout.write(json.dumps(VERDICTS | wrong, indent=1))
    assert {name: (found, VERDICTS[name]) for name, found in wrong.items()} == {}
