"""`make chaos` finds each kind of damage, in invented results of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.chaos.jobs import Jobs, Verdict

LINES = 20


class Ended(Jobs):
    """A run in which two jobs completed; tests damage it. ``b`` was killed in its first attempt."""

    def __init__(self, folder: Path) -> None:
        super().__init__("http://nowhere", "", folder, ["local"])
        self.ids = {0: "a", 1: "b"}
        self.shown: dict[str, dict[str, Any]] = {
            name: {"id": name, "state": "COMPLETED", "reason": ""} for name in self.ids.values()
        }
        self.attempts = {"a": ["SUCCEEDED"], "b": ["LOST", "SUCCEEDED"]}
        self.logs = {"a": _said(1, LINES), "b": _said(1, 7) + _said(2, LINES)}
        self.audit = ["a 1 begin 1.0", "a 1 end 2.0", "b 1 begin 1.0", "b 2 begin 3.0", "b 2 end 4.0"]

    def judge(self) -> Verdict:
        (self._folder / "audit").write_text("".join(f"{line}\n" for line in self.audit))
        return self.check({"b"})

    def _all(self) -> list[dict[str, Any]]:
        return list(self.shown.values())

    def _get(self, path: str) -> Any:
        job = path.split("/")[2]
        if path.startswith(f"/jobs/{job}/logs"):
            return {"lines": [{"text": text} for text in self.logs[job]]}
        return {
            "attempts": [{"n": n, "outcome": outcome, "reason": ""} for n, outcome in enumerate(self.attempts[job], 1)]
        }


def _said(attempt: int, lines: int) -> list[str]:
    return [f"{attempt} {number}" for number in range(lines)]


@pytest.fixture
def run(tmp_path: Path) -> Ended:
    return Ended(tmp_path)


def test_all_is_well(run: Ended) -> None:
    verdict = run.judge()
    assert verdict.good, verdict
    assert (verdict.attempts, verdict.checked_lines) == (3, 2 * LINES + 7)


def test_lost_jobs(run: Ended) -> None:
    del run.shown["a"]
    assert len(run.judge().lost) == 1
    run.shown["a"] = {"id": "a", "state": "COMPLETED", "reason": ""}
    run.audit.remove("a 1 end 2.0")
    assert run.judge().lost == ["a is COMPLETED and has not run to its end"]


@pytest.mark.parametrize("line", ["a 1 begin 1.5", "a 2 end 3.0", "b 2 overlaps 2.0"])
def test_jobs_that_ran_twice(run: Ended, line: str) -> None:
    run.audit.append(line)
    assert len(run.judge().twice) == 1


def test_a_job_that_nobody_submitted(run: Ended) -> None:
    del run.ids[0]
    assert run.judge().twice == ["a was submitted by nobody"]


def test_stuck_and_failed_jobs(run: Ended) -> None:
    run.shown["a"]["state"] = "PROCESSING"
    run.shown["b"]["state"] = "FAILED"
    verdict = run.judge()
    assert (len(verdict.stuck), len(verdict.failed)) == (1, 1)


@pytest.mark.parametrize("damage", ["lost", "doubled", "swapped", "cut"])
def test_lines(run: Ended, damage: str) -> None:
    log = run.logs["a"]
    match damage:
        case "lost":
            del log[3]
        case "doubled":
            log.insert(3, log[3])
        case "swapped":
            log[3], log[4] = log[4], log[3]
        case "cut":
            log.pop()
    assert len(run.judge().lines) == 1


def test_an_attempt_that_nobody_asked_for_is_told(run: Ended) -> None:
    run.attempts["a"] = ["INTERRUPTED", "SUCCEEDED"]
    run.logs["a"] = _said(2, LINES)
    verdict = run.judge()
    assert verdict.good
    assert len(verdict.repeated) == 1
