"""What runs in a learner sees saves and kills the program; and what was seen decides about the kills to come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from weft.drill import inside
from weft.drill.run import Undisturbed, plan
from weft.resources.jobs import Job

PROGRAM = """
import os, sys, time
folder = os.environ["CHECKPOINT_DIR"]
print("started", flush=True)
for n in range(1, 4):
    sys.stdin.readline()
    for name in sys.argv[1:]:
        with open(f"{folder}/draft.tmp", "w") as file:
            file.write(str(n))
        os.replace(f"{folder}/draft.tmp", f"{folder}/{name}")
        sys.stdin.readline()
time.sleep(600)
"""


class Learner:
    """A program that saves on request, and the watcher beside it."""

    def __init__(self, folder: Path, names: list[str], *arguments: str) -> None:
        environment = {**os.environ, "CHECKPOINT_DIR": str(folder)}
        self.program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *names], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.program.stdout is not None
        self.program.stdout.readline()
        command = [sys.executable, inside.__file__, *arguments]
        self.watcher = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)
        self.lines = self._read()

    def _read(self) -> Iterator[Mapping[str, Any]]:
        assert self.watcher.stdout is not None
        yield from map(json.loads, self.watcher.stdout)

    def go_on(self) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write(b"\n")
        self.program.stdin.flush()

    def close(self) -> None:
        for process in (self.program, self.watcher):
            process.kill()
            process.communicate()


def test_a_program_is_killed_in_its_second_save(tmp_path: Path) -> None:
    learner = Learner(tmp_path, ["state-7.npz"], "kill in a save", "1", "0", "new")
    try:
        assert next(learner.lines) == {"watching": "kill in a save"}
        learner.go_on()
        found = next(learner.lines)
        assert (found["save"], found["files"], found["in_place"]) == (1, ["state-#.npz"], [])
        assert found["at"] == (tmp_path / "state-7.npz").stat().st_mtime_ns / 1e9
        learner.go_on()
        learner.go_on()
        assert next(learner.lines)["processes"] == 1
        assert learner.program.wait(300) == -signal.SIGKILL
        assert (tmp_path / "state-7.npz").exists()
    finally:
        learner.close()


def test_a_save_in_parts_ends_with_its_last_file(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("of the attempt before")
    learner = Learner(tmp_path, ["weights", "counter"], "moment", "1", "0", "resumed", "counter")
    try:
        next(learner.lines)
        for part, save, name in ((1, 0, "weights"), (2, 1, "counter")):
            learner.go_on()
            found = next(learner.lines)
            assert (found["part"], found["save"], found["files"]) == (part, save, [name])
        assert next(learner.lines)["processes"] == 0
        assert learner.watcher.wait(300) == 0
        assert learner.program.poll() is None, "the reader of the moment acts, not the watcher"
    finally:
        learner.close()


def seen(*parts: tuple[float, str]) -> list[Mapping[str, Any]]:
    return [
        {"part": n, "at": at, "files": names.split(), "in_place": []} for n, (at, names) in enumerate(parts, start=1)
    ]


class _Two:
    learners = 2


def undisturbed(*parts: tuple[float, str]) -> Undisturbed:
    return Undisturbed(cast(Job, _Two()), seen(*parts))


def test_kills_are_spread_over_the_saves() -> None:
    first = undisturbed(*((10.0 + n, "config state" if n == 0 else "state") for n in range(20)))
    strikes = plan(first, 4, seed=1)
    assert [strike.kind for strike in strikes] == ["kill", "kill in a save", "halt", "kill"]
    assert strikes == plan(first, 4, seed=1)
    assert len({tuple(plan(first, 4, seed)) for seed in range(10)}) > 5
    assert all(2 <= strike.saves <= 4 and 0 <= strike.seconds <= 1 and not strike.last for strike in strikes)
    assert all(strike.learner == 1 for strike in strikes[1:3]), "the first learner's saves are seen"


def test_a_save_in_parts_is_known_by_its_files() -> None:
    parts = [(at, name) for n in range(4) for at, name in ((5.0 * n, "weights"), (5.0 * n + 2, "state"))]
    first = undisturbed(*parts)
    assert first.saves == [2.0, 7.0, 12.0, 17.0]
    assert first.habit == "a save writes weights, and 2.0 s later state"
    strike = plan(first, 2, seed=1)[1]
    assert strike.seconds == pytest.approx(1.6)
    assert strike.last == ("state",)
    assert undisturbed((0, "step-#/a"), (1, "step-#/a")).habit == ""
    assert undisturbed((0, "config"), (1, "state"), (2, "state")).habit == "", "written once"
