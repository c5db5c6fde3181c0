"""Data stores kept on the server, and the messages of a submission about stores with a problem."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.conftest import HELLO, Api, Person, code_of
from tests.servers import Servers

from weft_api.datastores import transfers
from weft_api.http.preview import MOST_SHOWN
from weft_api.storage.checker import Checker
from weft_core.engine_settings import LocalSettings, RaySettings
from weft_core.objects import make_client
from weft_core.settings import S3Settings


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about the store's answers, so they wait for it, however busy the machine is."""
    monkeypatch.setattr(Checker, "PATIENCE", 60.0)


@pytest.fixture
def own(servers: Servers) -> S3Settings:
    """A bucket of the user's."""
    return servers.bucket()


def _body(own: S3Settings, **changes: Any) -> dict[str, Any]:
    secret = own.secret_key.get_secret_value()
    return {"endpoint": own.endpoint, "user_name": own.access_key, "password": secret, **changes}


@pytest.fixture
def cos(ann: Person, own: S3Settings) -> S3Settings:
    answer = ann.http.post("/api/v1/datastores", json=_body(own, name="cos"))
    assert answer.status_code == 201, answer.text
    return own


def test_passwords_never_come_out(ann: Person, cos: S3Settings) -> None:
    for answer in (ann.http.get("/api/v1/datastores"), ann.http.get("/api/v1/datastores/cos")):
        assert answer.status_code == 200
        assert cos.access_key in answer.text
        assert cos.secret_key.get_secret_value() not in answer.text
        assert "password" not in answer.text


def test_changing_and_deleting(ann: Person, cos: S3Settings) -> None:
    answer = ann.http.post("/api/v1/datastores", json=_body(cos, name="cos"))
    assert (answer.status_code, code_of(answer)) == (409, "already_exists")
    answer = ann.http.put("/api/v1/datastores/cos", json=_body(cos, region="eu-de"))
    assert (answer.status_code, answer.json()["region"]) == (200, "eu-de")
    assert ann.http.put("/api/v1/datastores/other", json=_body(cos)).status_code == 404
    assert ann.http.delete("/api/v1/datastores/cos").status_code == 204
    assert ann.http.delete("/api/v1/datastores/cos").status_code == 404
    assert ann.http.post("/api/v1/datastores", json=_body(cos, name="cos")).status_code == 201


def test_credentials_are_checked_when_they_are_saved(ann: Person, own: S3Settings) -> None:
    wrong = _body(own, name="wrong", password="not-the-password")
    answer = ann.http.post("/api/v1/datastores", json=wrong)
    assert (answer.status_code, code_of(answer)) == (400, "store_refused")
    assert "credentials" in answer.json()["detail"]
    away = _body(own, name="away", endpoint="http://127.0.0.1:9")
    answer = ann.http.post("/api/v1/datastores", json=away)
    assert (answer.status_code, code_of(answer)) == (503, "store_unavailable")
    assert "retry-after" in answer.headers
    assert ann.http.post("/api/v1/datastores?check=false", json=wrong).status_code == 201


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../x"},
        {"name": ""},
        {"name": "a" * 64},
        {"endpoint": "ftp://x"},
        {"endpoint": "http://user:pw@host"},
        {"endpoint": "http://\0"},
        {"endpoint": "http://[::1"},
        {"endpoint": "http://host:99999999"},
        {"password": "new\nline"},
        {"password": ""},
        {"user_name": "ü"},
        {"extra": 1},
    ],
)
def test_bad_data_stores(ann: Person, own: S3Settings, changes: dict[str, Any]) -> None:
    answer = ann.http.post("/api/v1/datastores", json=_body(own, name="x") | changes)
    assert answer.status_code == 400, answer.text
    assert code_of(answer) in {"invalid_request", "store_refused"}
    assert own.secret_key.get_secret_value() not in answer.text


def test_objects_go_in_and_out_by_presigned_urls(ann: Person, cos: S3Settings) -> None:
    base = "/api/v1/datastores/cos"
    container = cos.bucket + "-new"
    for _ in range(2):
        assert ann.http.put(f"{base}/containers/{container}x").status_code == 204
    body = {"container": container, "key": "a/b c.gz", "size": 3}
    answer = ann.http.post(f"{base}/uploads", json={**body, "create_container": True})
    assert answer.status_code == 201, answer.text
    upload = answer.json()
    assert upload["upload_id"] is None
    assert "X-Amz-Expires=900&" in upload["parts"][0]["url"], "a sign-out does not end it"
    assert httpx.put(upload["parts"][0]["url"], content=b"abc", timeout=300).status_code == 200
    assert container in ann.http.get(f"{base}/objects").json()["containers"]
    listed = ann.http.get(f"{base}/objects", params={"container": container, "prefix": "a/"}).json()
    assert [(listed_object["key"], listed_object["size"]) for listed_object in listed["objects"]] == [("a/b c.gz", 3)]
    assert (listed["next_cursor"], listed["folders"]) == (None, None)
    level = ann.http.get(f"{base}/objects", params={"container": container, "folders": "true"}).json()
    assert (level["objects"], level["folders"]) == ([], ["a/"])
    download = ann.http.post(f"{base}/downloads", json={"container": container, "key": "a/b c.gz"}).json()
    assert download["size"] == 3
    assert "X-Amz-Expires=900&" in download["url"]
    assert httpx.get(download["url"], timeout=300).content == b"abc"
    answer = ann.http.post(f"{base}/downloads", json={"container": container, "key": "none"})
    assert (answer.status_code, code_of(answer)) == (404, "not_found")
    answer = ann.http.get(f"{base}/objects?container=no-such-container-at-all")
    assert (answer.status_code, code_of(answer)) == (400, "store_refused")
    assert "no-such-container-at-all" in answer.json()["detail"]


def test_objects_are_shown(ann: Person, bob: Person, cos: S3Settings) -> None:
    client = make_client(cos.endpoint, None, cos.access_key, cos.secret_key.get_secret_value())
    objects = {"a/t.csv": b"a,b\n1,2\n", "i.png": b"\x89PNG", "page.html": b"<script>x</script>", "m.pt": b"\0\1"}
    for key, content in {**objects, "long.txt": b"x" * (MOST_SHOWN + 1), "empty.txt": b""}.items():
        client.put_object(Bucket=cos.bucket, Key=key, Body=content)

    def show(key: str, person: Person = ann) -> httpx.Response:
        params = {"container": cos.bucket, "key": key}
        return person.http.get("/api/v1/datastores/cos/objects:preview", params=params)

    assert (show("a/t.csv").text, show("a/t.csv").headers["x-weft-size"]) == ("a,b\n1,2\n", "8")
    assert (show("i.png").content, show("i.png").headers["content-type"]) == (b"\x89PNG", "image/png")
    assert show("page.html").headers["content-type"].startswith("text/plain")
    assert "sandbox" in show("page.html").headers["content-security-policy"]
    assert (len(show("long.txt").content), show("long.txt").headers["x-weft-truncated"]) == (MOST_SHOWN, "true")
    assert (show("empty.txt").status_code, show("empty.txt").text) == (200, "")
    assert (show("m.pt").status_code, code_of(show("m.pt"))) == (415, "unsupported_media_type")
    assert (show("none").status_code, code_of(show("none"))) == (404, "not_found")
    assert show("a/t.csv", bob).status_code == 404, "a data store of another project"


def test_listings_are_paged(ann: Person, cos: S3Settings) -> None:
    client = make_client(cos.endpoint, None, cos.access_key, cos.secret_key.get_secret_value())
    for n in range(5):
        client.put_object(Bucket=cos.bucket, Key=f"{n}", Body=b"")
    keys: list[str] = []
    cursor: str | None = None
    while True:
        params = {"container": cos.bucket, "limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = ann.http.get("/api/v1/datastores/cos/objects", params=params).json()
        assert len(page["objects"]) <= 2
        keys += [listed_object["key"] for listed_object in page["objects"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert keys == ["0", "1", "2", "3", "4"]


def test_large_objects_are_uploaded_in_parts(ann: Person, cos: S3Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    part = 5 << 20  # S3's smallest
    monkeypatch.setattr(transfers, "_PART", part)
    base = "/api/v1/datastores/cos"
    size = part + 5
    body = {"container": cos.bucket, "key": "big", "size": size}
    key = {"Idempotency-Key": "upload-1"}
    upload = ann.http.post(f"{base}/uploads", json=body, headers=key).json()
    assert [part["size"] for part in upload["parts"]] == [part, 5]
    again = ann.http.post(f"{base}/uploads", json=body, headers=key).json()
    assert again["upload_id"] == upload["upload_id"], "a repeated request begins no second upload"
    etags = [
        httpx.put(part["url"], content=bytes(part["size"]), timeout=300).headers["etag"] for part in upload["parts"]
    ]
    done = {"container": cos.bucket, "key": "big", "upload_id": upload["upload_id"], "etags": etags}
    key = {"Idempotency-Key": "complete-1"}
    for _ in range(2):
        assert ann.http.post(f"{base}/uploads:complete", json=done, headers=key).status_code == 204
    assert ann.http.post(f"{base}/downloads", json={"container": cos.bucket, "key": "big"}).json()["size"] == size
    answer = ann.http.post(f"{base}/uploads:complete", json=done | {"upload_id": "nonsense"})
    assert (answer.status_code, code_of(answer)) == (400, "store_refused")


# --- at submit -------------------------------------------------------------------------------------------------------


def _manifest(connection: str, container: str, use: str = "training_data") -> str:
    return HELLO + f"data_stores: [{{id: d, {connection}, {use}: {{container: '{container}'}}}}]"


def _connection(own: S3Settings, password: str | None = None, endpoint: str | None = None) -> str:
    secret = password or own.secret_key.get_secret_value()
    return (
        f"connection: {{auth_url: '{endpoint or own.endpoint}', user_name: '{own.access_key}', password: '{secret}'}}"
    )


def _problem(answer: httpx.Response) -> dict[str, Any]:
    assert (answer.status_code, code_of(answer)) == (400, "invalid_manifest")
    (problem,) = answer.json()["problems"]
    found: dict[str, Any] = problem
    return found


def test_a_container_that_does_not_exist(ann: Person, cos: S3Settings) -> None:
    for use in ("training_data", "training_results", "pretrained_model"):
        for connection in (_connection(cos), "datastore: cos"):
            manifest = _manifest(connection, "no-such-container", use)
            problem = _problem(ann.http.post("/api/v1/jobs", json={"manifest": manifest}))
            assert problem["path"] == f"data_stores[0].{use}.container"
            assert "no-such-container" in problem["message"]


def test_wrong_credentials(ann: Person, own: S3Settings) -> None:
    manifest = _manifest(_connection(own, password="wrong-password"), own.bucket)
    problem = _problem(ann.http.post("/api/v1/jobs", json={"manifest": manifest}))
    assert problem["path"] == "data_stores[0].connection"
    assert "wrong-password" not in str(problem)


def test_an_unknown_data_store(ann: Person) -> None:
    problem = _problem(ann.http.post("/api/v1/jobs", json={"manifest": _manifest("datastore: nope", "c")}))
    assert (problem["path"], problem["found"]) == ("data_stores[0].datastore", "nope")


def test_a_mounted_folder(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """FfDL's mount_volume, of the folders that the operator gives to jobs."""

    def submit(path: str, uses: str) -> httpx.Response:
        store = f"{{id: d, type: mount_volume, connection: {{type: host_mount, name: v, path: {path}}}, {uses}}}"
        return ann.http.post("/api/v1/jobs", json={"manifest": HELLO + f"data_stores: [{store}]"})

    uses = "training_data: {container: digits/train}, training_results: {container: out, prefix: best}"
    refused = _problem(submit("/data", uses))
    assert refused["path"] == "data_stores[0].connection.path"
    assert "gives jobs no folder /data ([engines.local] host_mounts" in refused["message"]

    engines = {"local": LocalSettings(host_mounts=[Path("/data"), Path("/scratch")])}
    monkeypatch.setattr(api.context.settings, "engines", engines)
    assert "a folder in /data or /scratch" in _problem(submit("/database", uses))["accepted"]
    assert "patterns" in _problem(submit("/data", "training_data: {container: x, include: '*.jpg'}"))["message"]
    assert _problem(submit("/data", "pretrained_model: {container: x}"))["path"] == "data_stores[0].pretrained_model"

    job = submit("/data/vision/", uses)
    assert job.status_code == 201, job.text
    spec = api.attempt(job.json()["id"]).agents[0].start()
    assert spec["mounts"] == [{"id": "d", "path": "/data/vision/digits/train"}]
    assert spec["results_folder"] == f"/data/vision/out/best/{job.json()['id']}"
    assert (spec["data"], spec["results"]) == ([], None), "the API reads results from the installation's own store"

    monkeypatch.setattr(api.context.settings, "engines", {"local": RaySettings(address="http://127.0.0.1:1")})
    assert "is of type ray" in _problem(submit("/data", uses))["message"]


def test_what_no_learner_can_do_is_refused_at_submit(ann: Person) -> None:
    model = "data_stores: [{id: d, model: digits@3}]"
    problem = _problem(ann.http.post("/api/v1/jobs", json={"manifest": HELLO + model}))
    assert (problem["path"], problem["found"]) == ("data_stores[0].model", "digits@3")


def test_a_store_that_is_away_is_a_warning(ann: Person, own: S3Settings) -> None:
    manifest = _manifest(_connection(own, endpoint="http://127.0.0.1:9"), own.bucket)
    answer = ann.http.post("/api/v1/jobs", json={"manifest": manifest})
    assert answer.status_code == 201, answer.text
    events = ann.http.get(f"/api/v1/jobs/{answer.json()['id']}/events").json()["events"]
    (warning,) = [event["message"] for event in events if event["kind"] == "warning"]
    assert "data_stores[0].training_data" in warning
    assert "http://127.0.0.1:9" in warning


def test_the_server_calls_no_address_of_its_own_network_for_a_user(ann: Person, own: S3Settings) -> None:
    """Not when a data store is saved or read, nor at submit. Open ports look like closed ones."""
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.setblocking(False)
        said = []
        for port in (inside.getsockname()[1], 1):
            endpoint = f"http://127.0.0.1:{port}"
            refused = ann.http.post("/api/v1/datastores", json=_body(own, name="inside", endpoint=endpoint))
            assert refused.status_code == 503
            kept = ann.http.post("/api/v1/datastores?check=false", json=_body(own, name="inside", endpoint=endpoint))
            assert kept.status_code == 201
            listed = ann.http.get("/api/v1/datastores/inside/objects", params={"container": "a"})
            (note,) = _validate(ann, _manifest(_connection(own, endpoint=endpoint), own.bucket)).json()["notes"]
            words = [refused.json()["detail"], listed.json()["detail"], note]
            said.append([each.replace(endpoint, "URL") for each in words])
            assert ann.http.delete("/api/v1/datastores/inside").status_code == 204
        assert said[0] == said[1]
        assert all("outgoing.allow" in each for each in said[0])
        with pytest.raises(BlockingIOError):
            inside.accept()


def _validate(person: Person, manifest: str, **query: str) -> httpx.Response:
    return person.http.post("/api/v1/manifests:validate", content=manifest, params=query)


def test_validating_finds_what_submitting_would_refuse(ann: Person, cos: S3Settings) -> None:
    wrong = [
        (_manifest("datastore: nope", cos.bucket), "data_stores[0].datastore", "weft datastores list"),
        (_manifest("datastore: cos", "no-such-container"), "data_stores[0].training_data.container", "weft data"),
        (_manifest(_connection(cos), "no-such-container"), "data_stores[0].training_data.container", "weft data"),
        (HELLO + "data_stores: [{id: d, model: digits@3}]", "data_stores[0].model", "weft models list"),
        (HELLO + "secrets: {KEY: wandb}", "secrets.KEY", "`weft secrets set wandb`"),
    ]
    for manifest, path, accepted in wrong:
        problem = _problem(_validate(ann, manifest))
        assert (problem["path"], problem["line"]) == (path, 4), "the line that has to be changed"
        assert accepted in problem["accepted"]
        assert "/api/v1" not in str(problem), "users read this, and type commands"
        assert problem == _problem(ann.http.post("/api/v1/jobs", json={"manifest": manifest}))
    refused = _problem(_validate(ann, _manifest(_connection(cos, password="wrong-password"), cos.bucket)))
    assert refused["path"] == "data_stores[0].connection"
    assert "wrong-password" not in str(refused)

    ann.http.put("/api/v1/secrets/wandb", json={"value": "x"}).raise_for_status()
    right = _manifest("datastore: cos", cos.bucket) + "\nsecrets: {KEY: wandb}"
    assert _validate(ann, right).json()["notes"] == []
    given = _problem(_validate(ann, right, set="data_stores[0].training_data.container=no-such-container"))
    assert "line" not in given, "it stands in no line"


def test_validating_says_what_it_could_not_check(api: Api, ann: Person, cos: S3Settings, own: S3Settings) -> None:
    away = _manifest(_connection(own, endpoint="http://127.0.0.1:9"), own.bucket)
    (note,) = _validate(ann, away).json()["notes"]
    assert note.startswith("data_stores[0].training_data: not checked: ")
    assert "http://127.0.0.1:9" in note


def test_a_viewer_has_no_store_asked_but_the_projects(api: Api, ann: Person, cos: S3Settings) -> None:
    """The server calls an address that stands in a manifest only for those who may submit it."""
    viewer = api.person("viewer", ann.project_id)
    (note,) = _validate(viewer, _manifest(_connection(cos), "no-such-container")).json()["notes"]
    assert note == "data_stores[0].training_data: not checked: only editors may have its data store asked"
    problem = _problem(_validate(viewer, _manifest("datastore: cos", "no-such-container")))
    assert problem["path"] == "data_stores[0].training_data.container"


def test_the_learner_gets_the_data_stores_credentials(api: Api, ann: Person, cos: S3Settings) -> None:
    job = ann.submit(_manifest("datastore: cos", cos.bucket))
    (data,) = api.attempt(job["id"]).agents[0].start()["data"]
    assert data["location"]["secret_key"] == cos.secret_key.get_secret_value()
    assert (data["id"], data["location"]["container"]) == ("d", cos.bucket)
