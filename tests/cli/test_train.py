"""``weft train``, ``validate`` and ``rerun`` send manifests and code to the server; ``weft init`` writes a manifest."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import VALID, Weft, accept_code
from tests.cli.double import ID, Double, as_json, job, problem

from weft import ffdl
from weft.client import Client
from weft.exits import ExitCode

AFTER = ("--after", "job-a", "--after", "job-b:ended")
AFTER_VALUES = {"after[0].job": "job-a", "after[1].job": "job-b", "after[1].on": "ended"}


def test_train_sends_code_and_manifest_and_prints_the_id(server: Double, weft: Weft, code: Path) -> None:
    sha = accept_code(server, code)
    done = weft(
        "train", str(code / "manifest.yml"), "--set", "learners=4", "--set", "a.b=c=d", "--name", "other", *AFTER
    )
    assert (done.code, done.out) == (0, f"{ID}\n")
    (put,) = server.requests("PUT", f"code/{sha}")
    with zipfile.ZipFile(io.BytesIO(put.body)) as archive:
        assert archive.namelist() == ["train.py"]
    (sent,) = server.requests("POST", "jobs")
    assert sent.json == {
        "manifest": "name: mnist\nlearners: 2\n",
        "code_sha256": sha,
        "set": {"learners": "4", "a.b": "c=d", "name": "other", **AFTER_VALUES},
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


REPOSITORY = "name: mnist\nrepo: {url: https://git.example.com/x.git, ref: main}\n"


def test_with_a_repository_no_folder_is_sent(server: Double, weft: Weft, code: Path) -> None:
    sha = accept_code(server, code)
    plain = (code / "manifest.yml").read_text()
    (code / "manifest.yml").write_text(REPOSITORY)
    assert weft("train", str(code / "manifest.yml")).code == 0
    assert weft("train", str(code / "manifest.yml"), str(code)).code == 0
    (code / "manifest.yml").write_text(plain)
    assert weft("train", str(code / "manifest.yml"), "--set", "repo.url=https://git.example.com/x.git").code == 0
    sent = [request.json["code_sha256"] for request in server.requests("POST", "jobs")]
    assert sent == [None, sha, None], "a folder that is named is sent, and the server says what is wrong"


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
    monkeypatch.setattr("weft.commands.submitting._LARGE", 10)
    server.on("POST", "manifests:validate", problem(400, "invalid_manifest", problems=[FAULT]))
    assert weft("train", str(code / "manifest.yml")).code == ExitCode.INVALID
    assert [seen.method for seen in server.seen] == ["POST"]


@pytest.mark.parametrize(
    ("arguments", "code_", "said"),
    [
        (["train", "missing.yml"], 1, "there is no manifest missing.yml"),
        (["train", "manifest.yml", "missing"], 3, "there is no folder or zip missing"),
        (["train", "manifest.yml", "train.py"], 3, "neither a folder nor a zip"),
        (["train", "manifest.yml", "--set", "learners"], 2, "KEY=VALUE"),
        (["train", "manifest.yml", ".", "--no-code"], 2, "leave out the code or --no-code"),
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
    assert "has no code" in weft("rerun", ID, "--code", str(code)).err


def test_a_rerun_with_more_packages(server: Double, weft: Weft) -> None:
    server.on("POST", f"jobs/{ID}/rerun", as_json(job(id="job-new000000000"), 201))
    for listed, first in ((["rich"], 1), ([], 0)):
        old = job(manifest={"framework": {"name": "pytorch", "packages": listed}})
        server.on("GET", f"jobs/{ID}", as_json(old))
        assert weft("rerun", ID, "--with", "einops>=0.8", "--with", "tqdm", "--set", "learners=1").code == 0
        sent = server.requests("POST", f"jobs/{ID}/rerun")[-1]
        added = {f"framework.packages[{first}]": "einops>=0.8", f"framework.packages[{first + 1}]": "tqdm"}
        assert sent.json == {"set": {"learners": "1"} | added}


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
