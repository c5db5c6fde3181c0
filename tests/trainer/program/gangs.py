"""Gangs of processes that really hang, side by side, and what the agents of their learners would report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from tests.environments import python_of

from weft_core.hangs.report import Report
from weft_trainer.program import at_exit, collectives, looks, stacks

PROGRAMS = Path(__file__).parents[2] / "e2e" / "programs"
RECORDED = Path(__file__).parents[2] / "core" / "hangs"
"""The reports of these gangs, which tests/core/hangs judges again without them. WRITE_HANGS=1 writes them anew."""
SECONDS = 300


class Gangs:
    """The gangs side by side: children of one process, which has imported the libraries for all of them.

    Args:
        names: the functions of the program, each a hang.
        program: in tests/e2e/programs.
        image: whose environment runs it.
        ranks: of each gang.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        program: str = "hangs.py",
        image: str = "pytorch:2.13.0",
        ranks: int = 3,
    ) -> None:
        self.folder = folder
        self.ranks = ranks
        self.recorders = folder / "collectives"
        hooks = folder / "site-packages"
        for made in (self.recorders, hooks):
            made.mkdir()
        for module, name in ((at_exit, "weft_at_exit"), (collectives, "weft_collectives")):
            shutil.copy(str(module.__file__), hooks / f"{name}.py")
        (hooks / "sitecustomize.py").write_text("import weft_at_exit\n")  # as the environment of a job has it
        code = PROGRAMS / program
        self._process = subprocess.Popen(
            [python_of(image), code, folder, *names],
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
            if sum(map(len, self.pids.values())) == ranks * len(names):
                break

    def hang(self) -> None:
        """Wait until each rank is about to hang."""
        end = time.monotonic() + SECONDS
        expected = {f"{name}.{rank}" for name in self.pids for rank in range(self.ranks)}
        while missing := {name for name in expected if not (self.folder / name).exists()}:
            assert time.monotonic() < end, (missing, (self.folder / "errors").read_text())
            time.sleep(0.1)

    def report(self, name: str, looking: bool = False) -> dict[int, Report]:
        """What the agents of a gang's learners report, each with a rank.

        Args:
            looking: several looks, and not one.
        """
        owners = {
            process.pid: rank
            for rank, pid in self.pids[name].items()
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
        }
        others = {process.pid for process in psutil.Process().children(recursive=True)} - owners.keys()
        found: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(self.ranks)}
        take = looks.look if looking else lambda *places: stacks.take(*places).report
        for process in take(others, self.recorders, PROGRAMS)["processes"]:
            rank = owners[process["pid"]]
            found[rank].append(process | {"rank": rank, "world": self.ranks, "command": ""})
        return {rank: Report.model_validate({"processes": processes}) for rank, processes in found.items()}

    def end(self) -> None:
        for process in psutil.Process(self._process.pid).children(recursive=True):
            process.kill()
        self._process.kill()
        self._process.communicate()


def without_lines(verdict: str) -> str:
    """Recorded verdicts keep the lines that the program had then."""
    return re.sub(r"py:\d+", "py", verdict)


def verdicts(kind: str) -> dict[str, str]:
    """The expected verdicts, by hang."""
    return dict(json.loads((RECORDED / f"verdicts{kind}.json").read_text()))


def write(kind: str, reports: dict[str, dict[int, Report]]) -> None:
    recorded = {
        name: {rank: report.model_dump(exclude_defaults=True) for rank, report in gang.items()}
        for name, gang in reports.items()
    }
    lines = [f"{json.dumps(name)}: {json.dumps(gang, separators=(',', ':'))}" for name, gang in recorded.items()]
    (RECORDED / f"recorded{kind}.json").write_text("{" + ",\n".join(lines) + "}\n")
