"""``weft sweep`` against a double of the server, and against the API itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.api.conftest import Api, Person, api, api_settings
from tests.cli.conftest import Weft, accept_code
from tests.cli.double import Answer, Double, as_json, problem

from weft import errors
from weft.client import Client
from weft.commands.sweep import varied

__all__ = ["api", "api_settings"]  # fixtures

ID = "swp-2m7qd1ze4k9x"
MANIFEST = """name: digits
framework: {name: pytorch, command: "python train.py --lr ${sweep.lr}"}
sweep: {parameters: {lr: {log: [1e-4, 1e-1]}}, metric: score, search: manual, trials: 3}
"""


def trial(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "number": number,
        "state": "COMPLETED",
        "parameters": {"lr": 0.012345678, "fast": True},
        "value": 0.5 + number / 10,
        "reason": "",
        "job": f"job-{number}",
        "job_state": "COMPLETED",
        "created_at": "2026-01-31T08:15:02Z",
        "ended_at": "2026-01-31T08:16:12Z",
        **changes,
    }


def sweep(**changes: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "name": "digits",
        "state": "RUNNING",
        "reason": "",
        "metric": "score",
        "goal": "max",
        "search": "tpe",
        "trials": 4,
        "parallel": 2,
        "asked": 3,
        "told": 2,
        "best": trial(1),
        "user": "ada",
        "created_at": "2026-01-31T08:15:00Z",
        "ended_at": None,
        "notes": [],
        **changes,
    }


def curve(attempt: int, start: int, *values: float) -> dict[str, Any]:
    """What an attempt has reported from this step on."""
    whose = {"name": "score", "group": "", "kind": "user", "learner": 1, "attempt": attempt}
    steps = range(start, start + len(values))
    return {**whose, "x": [*steps], "min": values, "max": values, "last": values, "count": [1 for _ in steps]}


RUNNING = trial(2, state="RUNNING", value=None, job_state="PROCESSING", ended_at=None)


@pytest.fixture
def served(double: Double) -> Double:
    double.on("GET", "sweeps", as_json({"sweeps": [sweep()], "next_cursor": None}))
    double.on("GET", f"sweeps/{ID}", as_json(sweep(manifest={})))
    double.on("GET", f"sweeps/{ID}/trials", as_json({"trials": [trial(0), trial(1), RUNNING], "next_cursor": None}))
    double.on("GET", f"sweeps/{ID}/importance", as_json({"trials": 2, "parameters": []}))
    for number in range(3):
        double.on("GET", f"jobs/job-{number}/metrics/query", as_json({"series": []}))
    return double


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("env.LR=log:1e-4..1e-1", {"LR.log[0]": "1e-4", "LR.log[1]": "1e-1", "LR.set": "env.LR"}),
        ("env.DROPOUT=0..0.5", {"DROPOUT.uniform[0]": "0", "DROPOUT.uniform[1]": "0.5", "DROPOUT.set": "env.DROPOUT"}),
        ("learners=1,2", {"learners.values[0]": "1", "learners.values[1]": "2", "learners.set": "learners"}),
        ("width=int_log:-1..1024", {"width.int_log[0]": "-1", "width.int_log[1]": "1024"}),
        ("model=a..b,c", {"model.values[0]": "a..b", "model.values[1]": "c"}),
    ],
)
def test_what_vary_means(text: str, values: dict[str, str]) -> None:
    assert varied([text]) == {f"sweep.parameters.{path}": value for path, value in values.items()}


@pytest.mark.parametrize("texts", [["lr"], ["=1"], ["lr="], ["env.=1"], ["env.LR=1,2", "LR=3,4"]])
def test_what_vary_does_not_take(texts: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        varied(texts)


def test_a_sweep_is_submitted_with_its_code_and_options(weft: Weft, double: Double, code: Path) -> None:
    accept_code(double, code)
    double.on("POST", "sweeps", as_json(sweep(asked=0, told=0, best=None, notes=["a note"]), 201))
    done = weft("sweep", str(code / "manifest.yml"), "--vary", "env.LR=1,2", "--metric", "loss", "--goal", "min")
    assert (done.code, done.out.strip()) == (0, ID), done.err
    assert "a note" in done.err
    [sent] = [seen.json for seen in double.seen if (seen.method, seen.path.rpartition("/")[2]) == ("POST", "sweeps")]
    assert sent["set"] == {
        "sweep.parameters.LR.values[0]": "1",
        "sweep.parameters.LR.values[1]": "2",
        "sweep.parameters.LR.set": "env.LR",
        "sweep.metric": "loss",
        "sweep.goal": "min",
    }
    assert sent["code_sha256"]


def test_it_is_followed_to_its_end(weft: Weft, double: Double, code: Path) -> None:
    accept_code(double, code)
    double.on("POST", "sweeps", as_json(sweep(asked=0, told=0, best=None), 201))
    ended = sweep(state="FAILED", told=3, reason="3 trials in a row have failed")
    double.on("GET", f"sweeps/{ID}", as_json(ended))
    failed = trial(2, state="FAILED", value=None, reason="exit code 1")
    double.on("GET", f"sweeps/{ID}/trials", as_json({"trials": [trial(0), trial(1), failed], "next_cursor": None}))
    done = weft("sweep", str(code / "manifest.yml"), "--follow")
    assert done.code == 1
    assert "trial 1: COMPLETED score 0.6" in done.err
    assert "trial 2: FAILED exit code 1" in done.err
    assert "FAILED: 3 trials in a row have failed; the best is trial 1" in done.err


def test_faults_of_a_manifest_have_their_lines(weft: Weft, double: Double, code: Path) -> None:
    accept_code(double, code)
    fault = {"path": "sweep.search", "message": "expected one of: random", "line": 2, "found": "'asha'"}
    double.on("POST", "sweeps", problem(400, "invalid_manifest", problems=[fault]))
    done = weft("sweep", str(code / "manifest.yml"))
    assert done.code == 3
    assert "expected one of: random" in done.err


def test_lists_and_shows(weft: Weft, served: Double) -> None:
    listed = weft("sweep", "list")
    assert listed.out.splitlines()[1].split()[:8] == [ID, "digits", "RUNNING", "tpe", "2/4", "score", "0.6", "1"]
    shown = weft("sweep", "show", "@last")
    assert "2 of 4 trials ended, 1 under way; search tpe for the largest score" in shown.out
    assert "best so far" in shown.out
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["1", "true", "0.012346", "0.6", "COMPLETED", "job-1", "1", "min", "10", "s"] in lines
    assert any(line[:4] == ["2", "true", "0.012346", "–"] and "PROCESSING" in line for line in lines)
    assert json.loads(weft("sweep", "show", ID[:6], "--json").out)["trials"][2]["state"] == "RUNNING"


def test_the_best(weft: Weft, served: Double) -> None:
    served.on("GET", f"sweeps/{ID}/trials", as_json({"trials": [trial(1), trial(0)], "next_cursor": None}))
    done = weft("sweep", "best", ID)
    assert len(done.out.splitlines()) == 2
    assert "job-1" in done.out
    assert served.seen[-1].query["sort"] == ["best"]
    served.on("GET", f"sweeps/{ID}/trials", as_json({"trials": [], "next_cursor": None}))
    assert "no trial of" in weft("sweep", "best", ID).err


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_it_is_steered(weft: Weft, served: Double, verb: str) -> None:
    served.on("POST", f"sweeps/{ID}/{verb}", as_json(sweep(state="STOPPING")))
    assert f"{ID} is STOPPING" in weft("sweep", verb, "@last").err


@pytest.mark.parametrize("jobs", [False, True])
def test_it_is_deleted(weft: Weft, served: Double, jobs: bool) -> None:
    served.on("DELETE", f"sweeps/{ID}", Answer(204))
    assert "use --yes" in weft("sweep", "delete", ID).err
    done = weft("sweep", "delete", ID, "--yes", *(["--jobs"] if jobs else []))
    assert f"{ID}{' with the jobs of its 3 trials' if jobs else ''} is deleted" in done.err
    assert served.seen[-1].query == ({"jobs": ["true"]} if jobs else {})


def test_a_trial_that_goes_on_is_shown_at_each_end(weft: Weft, double: Double, code: Path) -> None:
    accept_code(double, code)
    double.on("POST", "sweeps", as_json(sweep(asked=0, told=0, best=None), 201))
    states = [sweep(search="asha", told=1), sweep(search="asha", told=1, state="COMPLETED", reason="all have ended")]
    pages = [[trial(0)], [trial(0, value=0.9, ended_at="2026-01-31T08:20:00Z")]]
    double.on("GET", f"sweeps/{ID}", *map(as_json, states))
    double.on("GET", f"sweeps/{ID}/trials", *(as_json({"trials": page, "next_cursor": None}) for page in pages))
    done = weft("sweep", str(code / "manifest.yml"), "--follow")
    assert [line[:31] for line in done.err.splitlines() if "trial 0:" in line] == [
        "trial 0: COMPLETED score 0.5 fa",
        "trial 0: COMPLETED score 0.9 fa",
    ]


def test_show_draws_what_the_page_does(weft: Weft, served: Double) -> None:
    tried = [("adam", 1e-4, 0.1), ("sgd", 1e-3, 0.5), ("adam", 1e-2, 0.9)]
    page = [trial(n, parameters={"opt": opt, "lr": lr}, value=value) for n, (opt, lr, value) in enumerate(tried)]
    served.on("GET", f"sweeps/{ID}", as_json(sweep(best=page[2], told=3)))
    served.on("GET", f"sweeps/{ID}/trials", as_json({"trials": page, "next_cursor": None}))
    shares = [{"name": "lr", "share": 0.8}, {"name": "opt", "share": 0.2}]
    served.on("GET", f"sweeps/{ID}/importance", as_json({"trials": 3, "parameters": shares}))
    attempts = [curve(1, 1, 0.2, 0.4), curve(2, 2, 0.5, 0.9)]
    served.on("GET", "jobs/job-2/metrics/query", as_json({"series": attempts}))
    lines = [line.rstrip() for line in weft("sweep", "show", ID).out.splitlines()]
    assert "best: trial 2, 0.9 with lr = 0.01, opt = adam  job-2" in lines
    at = lines.index("score of the best trials and of those under way")
    assert lines[at + 1].split() == ["a", "trial", "2", "*", "several"]
    assert lines[at + 2].startswith("  0.9")
    assert lines[at + 15].split() == ["step", "1", "step", "2", "step", "3"]
    at = lines.index("Parameters and value")
    assert [line.split() for line in lines[at + 1 : at + 3]] == [["lr", "opt", "score"], ["0.01", "sgd", "0.9"]]
    assert lines[at + 13].split() == ["0.0001", "adam", "0.1"]
    assert lines[at + 3][0] == "●", "the best has the largest lr"
    at = lines.index("Each parameter")
    assert lines[at + 1].split() == ["lr", "████████░░", "80%", "opt", "██░░░░░░░░", "20%"]
    slices = lines[at + 2 : at + 8]
    assert [line[4:38].strip() for line in slices] == ["┤" + " " * 32 + "●", "│", "│" + " " * 16 + "·", "│", "│", "┤·"]


def test_trials_of_a_population_name_the_trials_they_came_from(weft: Weft, served: Double) -> None:
    served.on("GET", f"sweeps/{ID}", as_json(sweep(search="pbt")))
    page = [trial(0), trial(1, parent=0)]
    served.on("GET", f"sweeps/{ID}/trials", as_json({"trials": page, "next_cursor": None}))
    lines = weft("sweep", "show", ID).out.splitlines()
    shown = [line.split()[:2] for line in lines if line.split()[:1] in (["TRIAL"], ["0"], ["1"])]
    assert shown == [["TRIAL", "FROM"], ["0", "–"], ["1", "0"]]


def test_an_unknown_sweep(weft: Weft, double: Double) -> None:
    double.on("GET", "sweeps", as_json({"sweeps": [], "next_cursor": None}))
    double.on("GET", "sweeps/swp-x", problem(404, "not_found"))
    assert weft("sweep", "show", "swp-x").code == 4
    assert "no sweeps yet" in weft("sweep", "show", "@last").err


# --- the API itself ---


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def library(api: Api, ann: Person) -> Iterator[Client]:
    with Client(api.url, ann.token) as made:
        yield made


def test_a_program_searches_itself(library: Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hi')\n")
    manifest = tmp_path / "manifest.yml"
    manifest.write_text(MANIFEST)
    made = library.sweep(manifest, tmp_path)
    sweeps = library.sweeps
    asked = [sweeps.ask(made.id, {"lr": value}, run=False) for value in (0.1, 0.01, 0.001)]
    with pytest.raises(errors.Conflict):
        sweeps.ask(made.id, {"lr": 0.1})
    for trial, value in zip(asked[:2], (0.5, 0.75), strict=True):
        assert sweeps.tell(made.id, trial.number, value).value == value
    assert sweeps.tell(made.id, 2, failed="out of memory").reason == "out of memory"
    assert [trial.number for trial in sweeps.trials(made.id)] == [0, 1, 2]
    assert [trial.number for trial in sweeps.trials(made.id, best_first=True)] == [1, 0]
    found = sweeps.find(made.id[:8])
    assert found.best is not None
    assert (found.best.number, found.told, found.manifest) == (1, 3, {})
    assert sweeps.get(made.id).manifest["sweep"]["search"] == "manual"
    assert sweeps.pause(made.id).state == "PAUSED"
    assert sweeps.resume(made.id).state == "RUNNING"
    assert sweeps.stop(made.id).state == "STOPPING"
    with pytest.raises(TimeoutError):
        sweeps.wait(made.id, timeout=0)
