"""FfDL's command lines, typed as ``weft …``, against the API itself."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs
from tests.api.conftest import PASSWORD, Api, Person, api, api_settings
from tests.api.test_logs import finish
from tests.api.test_metrics import T, record, send
from tests.cli.conftest import Weft

from weft import ffdl as program
from weft.commands import ffdl as pages

__all__ = ["api", "api_settings"]  # fixtures


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def weft(environment: None, capsys: pytest.CaptureFixture[str]) -> Iterator[Weft]:
    with capture_logs():  # the API is in this process: what it logs is not what the command prints
        yield Weft(capsys)


@pytest.fixture
def ffdl(environment: None, capsys: pytest.CaptureFixture[str]) -> Iterator[Weft]:
    """The same command lines, with FfDL's own output."""
    with capture_logs():
        yield Weft(capsys, program.app, "ffdl")


@pytest.fixture
def environment(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WEFT_URL", "WEFT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WEFT_PROFILE_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("DLAAS_URL", api.url)
    monkeypatch.setenv("DLAAS_USERNAME", ann.name)
    monkeypatch.setenv("DLAAS_PASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_scripts_of_ffdls(api: Api, weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "manifest.yml").write_text("name: old\nframework: {name: python, command: python train.py}")
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print('hello')")
    made = weft("train", "manifest.yml", "code/")
    assert made.code == 0, made.err
    (job_id,) = re.findall(r"job-[a-z0-9]{12}", made.out)
    assert json.loads(weft("show", job_id, "--json").out)["name"] == "old"
    assert weft("download", "--definition", job_id, "--filename", "code.zip").code == 0
    assert (tmp_path / "code.zip").read_bytes()[:4] == b"PK\x03\x04"

    attempt = api.attempt(job_id)
    (agent,) = attempt.agents
    agent.start()
    agent.log(0, *(f"line {n}" for n in range(1, 6)), t=T)
    assert weft("loglines", job_id, "--pagesize", "2").out == f"1 {T} line 1\n2 {T} line 2\n"
    assert weft("loglines", "--pos", "-1", "--pagesize", "1", job_id).out == f"5 {T} line 5\n"
    told = json.loads(weft("loglines", job_id, "--json", "--since", str(T), "--pagesize", "1").out)
    assert (told["line"], told["meta"]["rindex"], told["meta"]["training_id"]) == ("line 1", 1, job_id)
    assert weft("loglines", job_id, "--since", "soon").code != 0
    assert weft("loglines", "job-000000000000").code == 4

    send(agent, 0, record(3, T, "train", loss=0.5, note="\x1b[2Jx"))
    assert weft("emetrics", job_id).out.splitlines() == [
        f"time: {T}, group-label: train, training-id: {job_id}",
        "    etimes: iteration: {INT 3}, ",
        "    values: loss: {FLOAT 0.5}, note: {STRING x}, ",
    ]
    assert json.loads(weft("emetrics", "--json", job_id).out)["grouplabel"] == "train"

    # Lines of one millisecond, each once: FfDL's own client lost some, or began anew.
    monkeypatch.setattr(pages, "_PAUSE", 0.01)

    def goes_on() -> None:
        for sequence in range(1, 30):
            agent.log(sequence, f"line {sequence + 5}", t=T)
        finish(api, attempt)

    writer = threading.Thread(target=goes_on)
    writer.start()
    lines = weft("loglines", "--follow", job_id, "--pagesize", "4").out.splitlines()
    writer.join()
    assert lines == [f"{n} {T} line {n}" for n in range(1, 35)]
    assert weft("emetrics", "--follow", job_id).code == 0
    assert weft("halt", job_id).code != 0, "an error is no success, as it was with FfDL's client"
    assert json.loads(weft("logs", job_id, "--metrics").out)["iteration"] == 3
    assert weft("delete", job_id).code == 0, "FfDL's asked nothing"


TIME = r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d UTC"


@pytest.mark.slow
def test_what_ffdls_scripts_read(api: Api, ann: Person, ffdl: Weft, tmp_path: Path) -> None:
    manifest = """
name: old
description: as it was
gpus: 0
cpus: 0.5
memory: 1Gb
framework: {name: tensorflow, version: 1.5.0-py3, command: python train.py}
"""
    (tmp_path / "manifest.yml").write_text(manifest)
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print('hello')")
    assert ffdl("list").out.splitlines()[-1] == "0 records found."
    made = ffdl("train", "manifest.yml", "code")
    assert made.code == 0, made.err
    first, told, last = made.out.splitlines()
    assert first == "Deploying model with manifest 'manifest.yml' and model files in 'code'..."
    (job_id,) = re.findall(r"^Model ID: (job-[a-z0-9]{12})$", told)
    assert last == "OK"

    attempt = api.attempt(job_id)
    (agent,) = attempt.agents
    agent.start()
    agent.log(0, "epoch 1", "epoch 2", t=T)
    send(agent, 0, record(3, T, "train", loss=0.5))
    assert ffdl("logs", job_id).out == f"Getting model training logs for '{job_id}'...\nepoch 1\nepoch 2\n"
    measured = {"type": "train", "timestamp": "2026-01-31T08:15:09.000Z", "iteration": 3, "Values": {"loss": 0.5}}
    assert json.loads(ffdl("logs", "--metrics", "--json", job_id).out) == measured
    finish(api, attempt)
    assert ffdl("logs", "--follow", job_id).out.splitlines()[1:] == ["epoch 1", "epoch 2"]
    followed = ffdl("logs", "--follow", "--metrics", job_id).out.splitlines()[1]
    assert re.fullmatch(r"Timestamp: \S+:09.000Z Type: train    Iteration: 3      loss: 0.5 +", followed)

    _, head, row, blank, count = ffdl("list").out.splitlines()
    assert re.split("  +", head.strip()) == ["ID", "Name", "Framework", "Training status", "Submitted", "Completed"]
    assert (blank, count) == ("", "1 records found.")
    assert re.fullmatch(rf"{job_id}   old    tensorflow:1.5.0-py3   COMPLETED         {TIME}   {TIME}", row)

    shown = ffdl("show", job_id).out.splitlines()
    for line in (
        f"Id: {job_id}",
        "  Description: as it was",
        "  Status: COMPLETED",
        "  Resources: 0.50 CPUs | 0.00 GPUs | 1.00 GB Mem | 1 node(s)",
        "  Command: python train.py",
        "  Type: train {",
        "  \tTimestamp: 2026-01-31T08:15:09.000Z",
        "  \tloss: 0.5",
    ):
        assert line in shown, shown
    whole = ffdl("show", job_id, "--json").out.partition("\n")[2]
    assert json.loads(whole)["Payload"]["training"]["training_status"]["status"] == "COMPLETED"

    assert ffdl("download", job_id).code == 2, "it wants one of the two"
    got = ffdl("download", job_id, "--definition")
    assert got.out.splitlines()[1:] == [f"Downloaded file: {job_id}-definition.zip", "OK"]
    assert (tmp_path / f"{job_id}-definition.zip").read_bytes()[:4] == b"PK\x03\x04"
    refused = ffdl("halt", job_id)
    assert (refused.code, refused.out.splitlines()[-1]) == (1, f"Halting training job '{job_id}'...")
    assert refused.err.startswith("ffdl: error: ")
    assert ffdl("delete", job_id).out.splitlines() == [f"Deleting model '{job_id}'...", "OK"], "asks nothing"
    for command in ("show", "logs", "halt", "delete"):
        assert ffdl(command, "job-000000000000").code == 4
    assert ffdl("train", "manifest.yml").code == 2
    assert ffdl("version").code == 0
    (tmp_path / "manifest.yml").write_text("name: bad")
    bad = ffdl("train", "manifest.yml", "code")
    assert (bad.code, "framework" in bad.err) == (3, True)
    queued = ann.submit()["id"]
    assert ffdl("halt", queued).out.splitlines()[-1] == "OK"


def test_who_and_where_in_the_url(api: Api, ann: Person, ffdl: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    """FfDL's client took user and password from DLAAS_URL, too."""
    monkeypatch.delenv("DLAAS_USERNAME")
    monkeypatch.delenv("DLAAS_PASSWORD")
    monkeypatch.setenv("DLAAS_URL", api.url.replace("http://", f"http://{ann.token}:unused@"))
    assert ffdl("list").code == 0
    monkeypatch.setenv("DLAAS_URL", api.url.replace("http://", f"http://{ann.name}:{quote(PASSWORD)}@"))
    assert ffdl("list").code == 0
    monkeypatch.setenv("DLAAS_URL", api.url.replace("http://", f"http://{ann.name}:wrong@"))
    assert ffdl("list").code == 5
    monkeypatch.setenv("DLAAS_URL", api.url)
    assert ffdl("list").code == 5
