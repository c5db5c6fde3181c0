"""Verdicts on gangs of PyTorch that really hang, from what the agent reads of their processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.environments import FIRST_RUN, python_of

from weft_core.hangs.report import Report
from weft_core.hangs.verdict import judge
from weft_trainer.program import at_exit, collectives, stacks

PROGRAMS = Path(__file__).parents[2] / "e2e" / "programs"
RECORDED = Path(__file__).parents[2] / "core" / "hangs" / "recorded.json"
"""The reports of these gangs, which tests/core/hangs judges again without them. WRITE_HANGS=1 writes them anew."""
LIVE = ["skipped", "operations", "stopped", "loader_worker", "debugger", "start"]
"""The gangs that run in each test; to read all of them takes half a minute of CPU."""
VERDICTS: dict[str, str] = json.loads((RECORDED.parent / "verdicts.json").read_text())
SECONDS = 120
RANKS = 3


class Gangs:
    """The gangs side by side: children of one process, which has imported PyTorch for all of them."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.recorders = folder / "collectives"
        hooks = folder / "site-packages"
        for made in (self.recorders, hooks):
            made.mkdir()
        for module, name in ((at_exit, "weft_at_exit"), (collectives, "weft_collectives")):
            shutil.copy(str(module.__file__), hooks / f"{name}.py")
        (hooks / "sitecustomize.py").write_text("import weft_at_exit\n")  # as the environment of a job has it
        code = PROGRAMS / "hangs.py"
        self._process = subprocess.Popen(
            [python_of("pytorch:2.13.0"), code, folder, *names],
            env={**os.environ, "PYTHONPATH": str(hooks), collectives.FOLDER_VARIABLE: str(self.recorders)},
            stdin=subprocess.PIPE,  # the debugger reads it
            stdout=subprocess.PIPE,
            stderr=(folder / "errors").open("w"),
            text=True,
        )
        self.pids: dict[str, dict[int, int]] = {name: {} for name in names}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            started = json.loads(line)
            self.pids[started["hang"]][started["rank"]] = started["pid"]
            if sum(map(len, self.pids.values())) == RANKS * len(names):
                break

    def hang(self) -> None:
        """Wait until each rank is about to hang."""
        end = time.monotonic() + SECONDS
        expected = {f"{name}.{rank}" for name in self.pids for rank in range(RANKS)}
        while missing := {name for name in expected if not (self.folder / name).exists()}:
            assert time.monotonic() < end, (missing, (self.folder / "errors").read_text())
            time.sleep(0.1)

    def report(self, name: str) -> dict[int, Report]:
        """What the agents of a gang's learners report, each with a rank."""
        owners = {
            process.pid: rank
            for rank, pid in self.pids[name].items()
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
        }
        others = {process.pid for process in psutil.Process().children(recursive=True)} - owners.keys()
        found: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(RANKS)}
        for process in stacks.take(others, self.recorders, PROGRAMS).report["processes"]:
            rank = owners[process["pid"]]
            found[rank].append(process | {"rank": rank, "world": RANKS, "command": ""})
        return {rank: Report.model_validate({"processes": processes}) for rank, processes in found.items()}

    def end(self) -> None:
        for process in psutil.Process(self._process.pid).children(recursive=True):
            process.kill()
        self._process.kill()
        self._process.communicate()


def without_lines(verdict: str) -> str:
    """Recorded verdicts keep the lines that the program had then."""
    return re.sub(r"py:\d+", "py", verdict)


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
        recorded = {
            name: {rank: report.model_dump(exclude_defaults=True) for rank, report in reports.items()}
            for name, reports in kept.items()
        }
        lines = [f"{json.dumps(name)}: {json.dumps(gang, separators=(',', ':'))}" for name, gang in recorded.items()]
        RECORDED.write_text("{" + ",\n".join(lines) + "}\n")
        sys.stdout.write(json.dumps(VERDICTS | wrong, indent=1))
    assert {name: (found, VERDICTS[name]) for name, found in wrong.items()} == {}
