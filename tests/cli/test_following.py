"""``--follow`` shows a job's states and log, exits with the job's outcome, and advises what to do after a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Weft, accept_code
from tests.cli.double import END, ID, Double, as_json, events, job, job_event, line, line_events, problem

from weft.exits import ExitCode


def test_follow_shows_states_on_stderr_and_the_log_on_stdout(server: Double, weft: Weft, code: Path) -> None:
    accept_code(server, code)
    server.on(
        "GET",
        f"jobs/{ID}/events",
        events(
            job_event(1, "QUEUED", "waiting for 2 GPUs: 1 of 4 free"),
            job_event(2, None, "building environment: 12 of 37 packages", "image"),
            job_event(3, "COMPLETED", "completed"),
            END,
        ),
    )
    lines = [(0, "line", line(0, "one", 1)), (1, "line", line(1, "two", 2))]
    server.on("GET", f"jobs/{ID}/logs/follow", events(*lines, END))
    done = weft("train", str(code / "manifest.yml"), "--follow")
    assert done.code == 0
    assert done.out.splitlines() == [ID, "[1] one", "[2] two"]
    assert "waiting for 2 GPUs: 1 of 4 free" in done.err
    assert "12 of 37 packages" in done.err
    assert "COMPLETED  mnist" in done.err
    assert "in 1 min 9 s" in done.err
    assert f"weft download {ID} --trainedmodel" in done.err
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize(("state", "code_"), [("COMPLETED", 0), ("FAILED", 10), ("HALTED", 11)])
def test_follow_exits_with_the_outcome(double: Double, weft: Weft, state: str, code_: int) -> None:
    ended = job(state=state, reason="learner 2: exit code 3; its last lines:\n  boom", ended_at="2026-01-31T08:16:12Z")
    double.on("POST", f"jobs/{ID}/rerun", as_json(job(), 201))
    double.on("GET", f"jobs/{ID}", as_json(ended))
    double.on("GET", f"jobs/{ID}/events", events(END))
    double.on("GET", f"jobs/{ID}/logs/follow", events((None, "end", {"state": state, "reason": ""})))
    for command in (["rerun", ID, "--follow"], ["logs", ID, "--follow"]):
        done = weft(*command)
        assert done.code == code_
        assert state in done.err
        assert ("boom" in done.err) == (state != "COMPLETED")


def test_follow_of_a_job_that_gets_deleted(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()), problem(404, "not_found"))
    double.on("GET", f"jobs/{ID}/logs/follow", events((None, "end", {"state": "DELETED", "reason": "deleted"})))
    done = weft("logs", "-f", ID)
    assert (done.code, done.out) == (ExitCode.NOT_FOUND, "")
    assert "has been deleted" in done.err


def test_follow_as_json_is_lines_of_json(server: Double, weft: Weft, code: Path) -> None:
    accept_code(server, code)
    server.on("GET", f"jobs/{ID}/events", events(job_event(1, "QUEUED", "submitted"), END))
    server.on("GET", f"jobs/{ID}/logs/follow", events(*line_events([0]), END))
    done = weft("train", str(code / "manifest.yml"), "-f", "--json")
    got = [json.loads(row) for row in done.out.splitlines()]
    assert got[0]["type"] == "job"
    assert {item["type"] for item in got[1:-1]} == {"line", "event"}
    assert (got[-1]["type"], got[-1]["state"]) == ("job", "COMPLETED")


def test_the_advice_after_a_failure_is_one_that_helps(double: Double, weft: Weft) -> None:
    trace = "learner 1: exit code 1; its last lines:\n  Traceback (most recent call last):\n  "
    told = [
        (
            {"error_code": "S100", "reason": "can never fit: 9 GPUs a learner"},
            ["weft engines local", "--set KEY=VALUE"],
        ),
        ({"error_code": "S103", "reason": "image x: no such image"}, ["weft images list --framework horovod"]),
        (
            {"reason": trace + "ModuleNotFoundError: No module named 'utils.data'"},
            ["add utils to the code", "--code DIR", "--with PACKAGE"],
        ),
        (
            {"reason": "learner 1: exit code 1; `framework: {packages: [einops]}` adds what is missing; " + trace},
            [f"add einops:  weft rerun {ID} --with einops"],
        ),
        (
            {"reason": 'learner 1: exit code 1; `framework: {packages: ["ray[tune]"]}` adds what is missing'},
            [f"weft rerun {ID} --with 'ray[tune]'"],
        ),
        (
            {"reason": "exit code 1; `framework: {packages: [torchvision], index: {url: URL}}` adds what is missing"},
            [f"weft rerun {ID} --with torchvision --set framework.index.url=URL"],
        ),
        (
            {"reason": "learner 1: exit code 1; `framework: {name: pytorch}` has the module torch"},
            [f"weft rerun {ID} --set framework.name=pytorch"],
        ),
        (
            {"error_code": "C102", "reason": "packages: no solution. Asked for by requirements.txt line 2: numpy<2"},
            [f"change the packages:  weft rerun {ID} --code DIR"],
        ),
        (
            {"error_code": "C102", "reason": "packages: no solution. Asked for by framework.packages[0]: numpy<2"},
            [f"change the packages:  weft rerun {ID} --set framework.packages=PACKAGE"],
        ),
        ({"reason": trace + "ImportError: cannot import name 'x' from 'y'"}, ["--code DIR"]),
        ({"reason": trace + "SyntaxError: invalid syntax"}, ["--code DIR"]),
        ({"reason": "learner 1: command not found: pyhton"}, ["--set framework.command="]),
        ({"reason": "learner 2 was killed: out of memory (limit 2 GiB)"}, ["--set memory=SIZE"]),
    ]
    for changes, helping in told:
        made = job(**{"state": "FAILED", "error_code": "C201", "ended_at": "2026-01-31T08:16:12Z"} | changes)
        double.on("GET", f"jobs/{ID}", as_json(made))
        double.on("GET", f"jobs/{ID}/logs/follow", events((None, "end", {"state": "FAILED", "reason": ""})))
        double.on("GET", f"jobs/{ID}/events", events((None, "end", {"state": "FAILED", "reason": ""})))
        done = weft("logs", ID, "--follow")
        assert done.code == ExitCode.JOB_FAILED
        assert all(hint in done.err for hint in helping), done.err
        assert ("weft resume" in done.err) == (changes.get("error_code") == "S103"), "going on as before can't help"
    for state, reason in (("FAILED", "learner 1: exit code 3"), ("HALTED", "halted by request")):
        double.on("GET", f"jobs/{ID}", as_json(job(state=state, reason=reason, error_code=None)))
        assert f"continue:  weft resume {ID}" in weft("logs", ID, "--follow").err
