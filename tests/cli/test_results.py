"""``weft files`` lists a job's results; ``weft download`` writes them to a file or a folder."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from tests.cli.conftest import Weft
from tests.cli.double import DROP, ID, Answer, Double, as_json, job, problem

from weft.exits import ExitCode


def test_files_are_listed(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    files = [{"path": "a/[b].pt", "size": 2048, "modified": "2026-01-31T08:15:03Z"}]
    double.on("GET", f"jobs/{ID}/files", as_json({"files": files}))
    assert "2 KiB" in weft("files", ID).out
    assert "a/[b].pt" in weft("files", ID).out


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
    assert (again.code, "not an empty folder" in again.err) == (1, True)
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
