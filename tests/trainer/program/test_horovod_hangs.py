"""Gangs of Horovod that really hang. Ranks that wait poll, so they are busy: only several looks show the hang."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from tests.environments import FIRST_RUN
from tests.trainer.program.gangs import SECONDS, Gangs, verdicts, without_lines, write

from weft_core.hangs.report import Report
from weft_core.hangs.stillness import hangs
from weft_core.hangs.verdict import judge
from weft_trainer.program import looks

VERDICTS = verdicts("_horovod")
LIVE = ["skipped", "names"]
"""The gangs that run in each test. The ranks that wait use a core for every three of them."""


@pytest.mark.timeout(FIRST_RUN)
def test_a_hang_of_horovod_is_seen_though_its_ranks_are_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "_SECONDS", 1.0)
    wrong = dict.fromkeys(VERDICTS if os.environ.get("WRITE_HANGS") else LIVE, "")
    gangs = Gangs(tmp_path, list(wrong), "hangs_horovod.py", "horovod:0.28.1-torch2.13", ranks=2)
    kept: dict[str, dict[int, Report]] = {}
    try:
        gangs.hang()
        end = time.monotonic() + SECONDS
        while wrong and time.monotonic() < end:  # a rank may be on its way into its hang
            for name in list(wrong):
                kept[name] = gangs.report(name, looking=True)
                verdict = judge(kept[name], {})
                wrong[name] = f"{verdict.text if verdict else 'none'}, {hangs(kept[name], {})}"
                if without_lines(wrong[name]) == f"{without_lines(VERDICTS[name])}, True":
                    del wrong[name]
    finally:
        gangs.end()
    if os.environ.get("WRITE_HANGS"):
        write("_horovod", kept)
        sys.stdout.write(json.dumps(VERDICTS | wrong, indent=1))
    assert {name: (found, VERDICTS[name]) for name, found in wrong.items()} == {}
