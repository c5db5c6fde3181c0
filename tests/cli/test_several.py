"""``weft halt`` and ``weft delete`` act on several jobs, or on all jobs that a filter finds."""

from __future__ import annotations

import io
import json

import pytest
from tests.cli.conftest import Weft
from tests.cli.double import DROP, Double, as_json, job, jobs_page, problem

from weft.exits import ExitCode

FIRST, SECOND, THIRD = "job-aaaaaaaaaaaa", "job-bbbbbbbbbbbb", "job-cccccccccccc"


@pytest.fixture
def three(double: Double) -> Double:
    """Three jobs, of which the second can't be halted or deleted."""
    jobs = [job(id=job_id, name=f"n-{job_id[4]}", state="PROCESSING") for job_id in (FIRST, SECOND, THIRD)]
    double.on("GET", "jobs", jobs_page(*jobs))
    for running in jobs:
        path = f"jobs/{running['id']}"
        double.on("GET", path, as_json(running))
        refused = running["id"] == SECOND
        no = problem(409, "conflict", "the job is COMPLETED: there is nothing to halt")
        double.on("POST", f"{path}/halt", no if refused else as_json(running, 202))
        double.on("DELETE", path, no if refused else as_json(running, 202))
    return double


def hit(double: Double) -> list[str]:
    """The jobs that were to be halted or deleted, in order."""
    return [seen.path.split("/")[4] for seen in double.seen if seen.method == "DELETE" or seen.path.endswith("/halt")]


class Terminal(io.StringIO):
    """What is typed."""

    def isatty(self) -> bool:
        return True


def test_several_are_halted_and_what_one_refuses_stops_no_other(three: Double, weft: Weft) -> None:
    done = weft("halt", FIRST, "job-none", SECOND, THIRD, FIRST)
    assert done.code == ExitCode.NOT_FOUND, "of the first that went wrong"
    assert hit(three) == [FIRST, SECOND, THIRD], "each once"
    lines = [line for line in done.err.splitlines() if line]
    assert lines == [
        "job-none: no job has the id or name 'job-none', and no id begins with it",
        f"{FIRST} is being halted",
        f"{SECOND}: the job is COMPLETED: there is nothing to halt",
        f"{THIRD} is being halted",
    ]
    told = weft("halt", THIRD, FIRST, "--json")
    assert [shown["id"] for shown in json.loads(told.out)] == [THIRD, FIRST]
    assert json.loads(weft("halt", FIRST, "--json").out)["id"] == FIRST, "one is an object, as ever"


@pytest.mark.parametrize("verb", ["halt", "delete"])
def test_a_filter_shows_what_it_finds_and_asks(
    three: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    found = [verb, "--label", "team=vision", "--state", "processing"]
    refused = weft(*found)
    assert refused.code == ExitCode.USAGE
    assert "use --yes" in refused.err
    assert all(job_id in refused.err for job_id in (FIRST, SECOND, THIRD)), "what would be hit"
    assert hit(three) == []
    assert three.requests("GET", "jobs")[0].query == {
        "label": ["team=vision"], "state": ["PROCESSING"], "limit": ["100"],
    }  # fmt: skip

    done = weft(*found, "--yes")
    assert (done.code, hit(three)) == (ExitCode.ERROR, [FIRST, SECOND, THIRD])
    assert f"{SECOND}: the job is COMPLETED" in done.err

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert weft(*found).code == ExitCode.ERROR
    assert len(hit(three)) == 3, "nothing after a no"
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    asked = weft(*found)
    assert "these 3 jobs" in asked.err
    assert len(hit(three)) == 6


def test_a_filter_without_a_state_halts_what_has_not_ended(three: Double, weft: Weft) -> None:
    weft("halt", "--label", "team=vision", "--yes")
    alive = ["QUEUED", "PENDING", "DOWNLOADING", "PROCESSING", "STORING"]
    assert three.requests("GET", "jobs")[0].query["state"] == alive
    three.on("GET", "jobs", jobs_page())
    none = weft("halt", "--label", "team=none")
    assert (none.code, none.err) == (0, "no such jobs\n")


@pytest.mark.parametrize(
    "arguments",
    [["halt"], ["delete"], ["halt", FIRST, "--label", "a=b"], ["delete", FIRST, "--state", "FAILED"]],
)
def test_it_is_either_jobs_or_a_filter(three: Double, weft: Weft, arguments: list[str]) -> None:
    assert weft(*arguments, "--yes").code == ExitCode.USAGE
    assert weft("halt", "--state", "COMPLETED", "--yes").code == ExitCode.USAGE
    assert hit(three) == []


def test_named_jobs_are_deleted_after_one_question(three: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLAAS_URL", three.url)
    refused = weft("delete", FIRST, THIRD)
    assert refused.code == ExitCode.USAGE, "FfDL's delete knew one"
    assert FIRST in refused.err
    done = weft("delete", FIRST, THIRD, "--yes")
    assert (done.code, hit(three)) == (0, [FIRST, THIRD])


def test_a_server_that_goes_away_is_not_asked_for_each(three: Double, weft: Weft) -> None:
    three.on("POST", f"jobs/{FIRST}/halt", DROP)
    done = weft("halt", FIRST, SECOND, THIRD)
    assert done.code == ExitCode.UNREACHABLE
    assert "2 more jobs not tried" in done.err
    assert set(hit(three)) == {FIRST}
