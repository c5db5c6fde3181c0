"""FfDL's command lines, typed as ``weft …``, against the API itself."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.api.conftest import PASSWORD, Api, Person, api, api_settings
from tests.api.test_logs import finish
from tests.api.test_metrics import T, record, send
from tests.cli.conftest import Weft

from weft.commands import ffdl

__all__ = ["api", "api_settings"]  # fixtures


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def weft(
    api: Api, ann: Person, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Weft]:
    for name in ("WEFT_URL", "WEFT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WEFT_PROFILE_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("DLAAS_URL", api.url)
    monkeypatch.setenv("DLAAS_USERNAME", ann.name)
    monkeypatch.setenv("DLAAS_PASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)
    with capture_logs():  # the API is in this process: what it logs is not what the command prints
        yield Weft(capsys)


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
    assert weft("loglines", "--pos", "-1", job_id).out == f"5 {T} line 5\n"
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
    monkeypatch.setattr(ffdl, "_PAUSE", 0.01)

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
    assert weft("delete", job_id, "--yes").code == 0
