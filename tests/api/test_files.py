"""The results of a job, from the installation's store or the user's own."""

from __future__ import annotations

import hashlib
import io
import zipfile

import httpx
import pytest
from tests.api.conftest import HELLO, Api, Person, code_of, zipped
from tests.servers import Servers

from weft_core.objects import make_client, results_prefix


@pytest.fixture
def job(api: Api, ann: Person) -> str:
    """A job with results in the installation's own store."""
    job_id: str = ann.submit()["id"]
    prefix = results_prefix(ann.project_id, job_id)
    api.context.objects.put(prefix + "model.pt", b"weights" * 1000)
    api.context.objects.put(prefix + "logs/tb/näme +%.txt", b"x")
    api.context.objects.put(prefix + "empty", b"")
    return job_id


def _complete(api: Api, job_id: str) -> None:
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job_id, state)


def test_files_are_listed_and_read(ann: Person, job: str) -> None:
    listed = ann.http.get(f"/api/v1/jobs/{job}/files").json()
    assert listed["complete"] is True
    assert [(file["path"], file["size"]) for file in listed["files"]] == [
        ("empty", 0),
        ("logs/tb/näme +%.txt", 1),
        ("model.pt", 7000),
    ]
    answer = ann.http.get(f"/api/v1/jobs/{job}/files/model.pt")
    assert answer.content == b"weights" * 1000
    assert answer.headers["content-length"] == "7000"
    assert ann.http.get(f"/api/v1/jobs/{job}/files/logs/tb/n%C3%A4me%20+%25.txt").content == b"x"
    assert ann.http.get(f"/api/v1/jobs/{job}/files/empty").content == b""


HOSTILE = b"<script>alert(document.cookie)</script>"


def test_a_preview_never_runs_as_a_page(api: Api, ann: Person, job: str) -> None:
    prefix = results_prefix(ann.project_id, job)
    put = api.context.objects.put
    for name in ("a.html", "a.svg", "a.txt", "a", "a.xhtml", "a.js"):
        put(prefix + name, HOSTILE)
    put(prefix + "a.json", b'{"a": 1}')
    put(prefix + "a.PNG", b"\x89PNG\r\n" + HOSTILE)
    put(prefix + "long.log", b"line\n" * 300_000)
    put(prefix + "weights", b"\0" * 100)

    def shown(path: str, preview: str = "true") -> httpx.Response:
        answer = ann.http.get(f"/api/v1/jobs/{job}/files/{path}", params={"preview": preview})
        if answer.status_code == 200:
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
        return answer

    for name in ("a.html", "a.svg", "a.txt", "a", "a.xhtml", "a.js"):
        answer = shown(name)
        assert (answer.headers["content-type"], answer.content) == ("text/plain; charset=utf-8", HOSTILE)
        assert answer.headers["x-weft-truncated"] == "false"
        assert shown(name, "false").headers["content-type"] == "application/octet-stream"
        assert shown(name, "false").headers["content-disposition"].startswith("attachment")
    assert shown("a.json").headers["content-type"] == "application/json"
    assert shown("a.PNG").headers["content-type"] == "image/png"
    assert shown("a.PNG").headers["content-disposition"].startswith("inline")
    cut = shown("long.log")
    assert (len(cut.content), cut.headers["x-weft-size"], cut.headers["x-weft-truncated"]) == (
        1 << 20,
        "1500000",
        "true",
    )
    assert shown("empty").content == b""
    assert (shown("weights").status_code, code_of(shown("weights"))) == (415, "unsupported_media_type")
    assert shown("none.txt").status_code == 404


def test_the_code_of_a_job_is_shown_file_by_file(api: Api, ann: Person, bob: Person) -> None:
    code = zipped(train__py="print('hi')", long__txt="x" * (2 << 20), page__html=HOSTILE.decode(), bin="\0")
    sha256 = hashlib.sha256(code).hexdigest()
    assert ann.http.put(f"/api/v1/code/{sha256}", content=code).status_code == 201
    job = ann.submit(code_sha256=sha256)["id"]
    listed = ann.http.get(f"/api/v1/jobs/{job}/code").json()
    assert listed["complete"]
    sums = {file["path"]: file["crc32"] for file in listed["files"]}
    assert (sums["train.py"], sums["bin"]) == ("f362b6f1", "d202ef8d")
    assert {file["path"]: file["size"] for file in listed["files"]} == {
        "train.py": 11, "long.txt": 2 << 20, "page.html": len(HOSTILE), "bin": 1,
    }  # fmt: skip
    answer = ann.http.get(f"/api/v1/jobs/{job}/code/train.py")
    assert (answer.text, answer.headers["content-type"]) == ("print('hi')", "text/plain; charset=utf-8")
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert ann.http.get(f"/api/v1/jobs/{job}/code/page.html").headers["content-type"].startswith("text/plain")
    cut = ann.http.get(f"/api/v1/jobs/{job}/code/long.txt")
    assert (len(cut.content), cut.headers["x-weft-size"]) == (1 << 20, str(2 << 20))
    assert ann.http.get(f"/api/v1/jobs/{job}/code/bin").status_code == 415
    for path in ("nothing.py", "%2e%2e/train.py", "/train.py"):
        assert ann.http.get(f"/api/v1/jobs/{job}/code/{path}").status_code == 404
    assert bob.http.get(f"/api/v1/jobs/{job}/code/train.py").status_code == 404
    bare = ann.submit()["id"]
    assert ann.http.get(f"/api/v1/jobs/{bare}/code").status_code == 404


@pytest.mark.parametrize("path", ["no", "%2e%2e/%2e%2e/code", "a//b", "%00", "a%0Ab", "..%2f..%2fx", "%ff", "x" * 3000])
def test_other_paths_are_not_found(ann: Person, job: str, path: str) -> None:
    answer = ann.http.get(f"/api/v1/jobs/{job}/files/{path}")
    assert (answer.status_code, code_of(answer)) == (404, "not_found")


def test_the_trained_model_is_a_zip(api: Api, ann: Person, job: str) -> None:
    answer = ann.http.get(f"/api/v1/jobs/{job}/trained-model")
    assert (answer.status_code, code_of(answer)) == (409, "no_results_yet")
    _complete(api, job)
    answer = ann.http.get(f"/api/v1/jobs/{job}/trained-model")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["empty", "logs/tb/näme +%.txt", "model.pt"]
        assert archive.read("model.pt") == b"weights" * 1000
        assert archive.getinfo("model.pt").date_time[0] >= 2024


def test_results_that_are_gone(api: Api, ann: Person) -> None:
    job_id = ann.submit()["id"]
    assert ann.http.get(f"/api/v1/jobs/{job_id}/files").json() == {"files": [], "complete": True}
    _complete(api, job_id)
    answer = ann.http.get(f"/api/v1/jobs/{job_id}/trained-model")
    assert (answer.status_code, code_of(answer)) == (410, "results_gone")
    answer = ann.http.get(f"/api/v1/jobs/{job_id}/definition")
    assert (answer.status_code, code_of(answer)) == (404, "not_found")
    assert "without code" in answer.json()["detail"]


def test_results_in_a_users_store(api: Api, ann: Person, servers: Servers) -> None:
    own = servers.bucket()
    secret = own.secret_key.get_secret_value()
    answer = ann.http.post(
        "/api/v1/datastores",
        json={"name": "cos", "endpoint": own.endpoint, "user_name": own.access_key, "password": secret},
    )
    assert answer.status_code == 201, answer.text
    store = f"data_stores: [{{id: d, datastore: cos, training_results: {{container: {own.bucket}, prefix: a/b}}}}]"
    job_id = ann.submit(HELLO + store)["id"]
    client = make_client(own.endpoint, None, own.access_key, secret)
    client.put_object(Bucket=own.bucket, Key=f"a/b/{job_id}/model.pt", Body=b"weights")
    client.put_object(Bucket=own.bucket, Key="a/b/other/model.pt", Body=b"not its own")
    client.put_object(Bucket=own.bucket, Key=f"a/b/{job_id}x/model.pt", Body=b"not its own")
    listed = ann.http.get(f"/api/v1/jobs/{job_id}/files").json()["files"]
    assert [file["path"] for file in listed] == ["model.pt"]
    assert ann.http.get(f"/api/v1/jobs/{job_id}/files/model.pt").content == b"weights"
    _complete(api, job_id)
    with zipfile.ZipFile(io.BytesIO(ann.http.get(f"/api/v1/jobs/{job_id}/trained-model").content)) as archive:
        assert archive.namelist() == ["model.pt"]
    assert ann.http.delete("/api/v1/datastores/cos").status_code == 204
    answer = ann.http.get(f"/api/v1/jobs/{job_id}/files")
    assert (answer.status_code, code_of(answer)) == (410, "results_gone")
    assert "'cos'" in answer.json()["detail"]
