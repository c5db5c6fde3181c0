"""The registry over HTTP: registering, references, downloads, stages, deletions, and jobs that start from a version."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from tests.api.conftest import HELLO, Api, Person, backup, code_of
from tests.servers import Servers

from weft_core.objects import make_client, results_prefix
from weft_core.store.models import Job

REGISTERS = HELLO + "data_stores: [{training_results: {model: digits}}]\n"
STARTS = HELLO + "data_stores: [{model: digits@%s, training_results: {model: digits}}]\n"


def completed(api: Api, who: Person, manifest: str = REGISTERS, **files: bytes) -> str:
    """A job with results in the installation's own store, whose learner has said what they are."""
    job_id: str = who.submit(manifest)["id"]
    for name, data in (files or {"model": b"weights"}).items():
        api.context.objects.put(results_prefix(who.project_id, job_id) + name, data)
    attempt = api.attempt(job_id)
    [agent] = attempt.agents
    agent.start()
    listing = {"files": 3, "bytes": 99, "sha256": "a" * 64}
    assert agent.post("phase", phase="PROCESSING", inputs={"data": listing}).status_code == 204
    assert agent.post("storing", exit_code=0).json()["granted"]
    assert agent.post("exit", exit_code=0).status_code == 204
    api.end_attempt(attempt)
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job_id, state)
    return job_id


def get(who: Person, path: str) -> Any:
    answer = who.http.get(f"/api/v1/models{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_job_that_names_a_model_becomes_its_versions(api: Api, ann: Person) -> None:
    first, second = completed(api, ann), completed(api, ann)
    shown = get(ann, "/digits")
    assert (shown["name"], shown["latest"], shown["versions"], shown["stages"]) == ("digits", 2, 2, {})
    assert [(row["version"], row["job"]) for row in get(ann, "/digits/versions")["versions"]] == [
        (2, second),
        (1, first),
    ]
    version = get(ann, "/digits/versions/latest")
    assert (version["reference"], version["place"], version["parent"]) == ("digits@2", None, None)
    assert version["job_name"] == version["lineage"]["job"]["name"]
    assert version["description"] == version["lineage"]["manifest"].get("description", "")
    listed = get(ann, "/digits/versions")["versions"][0]
    assert {name: metric["last"] for name, metric in listed["metrics"].items()} == {
        name: metric["last"] for name, metric in version["lineage"]["metrics"].items()
    }
    assert version["lineage"]["data"] == {"files": 3, "bytes": 99, "sha256": "a" * 64}
    assert ann.http.get(f"/api/v1/jobs/{second}").json()["models"] == ["digits@2"]
    assert ann.http.get("/api/v1/models/nothing").status_code == 404
    assert ann.http.get("/api/v1/models/digits/versions/7").json()["detail"].endswith("its latest is 2")


def test_pages(api: Api, ann: Person) -> None:
    job = completed(api, ann, HELLO)
    for name in ("b", "a", "c.1"):
        assert ann.http.post(f"/api/v1/models/{name}/versions", json={"job": job}).status_code == 201
    page = get(ann, "?limit=2")
    assert [model["name"] for model in page["models"]] == ["a", "b"]
    rest = get(ann, f"?limit=2&cursor={page['next_cursor']}")
    assert ([model["name"] for model in rest["models"]], rest["next_cursor"]) == (["c.1"], None)
    assert [model["name"] for model in get(ann, "?q=C.")["models"]] == ["c.1"]
    for _ in range(2):
        completed(api, ann)
    page = get(ann, "/digits/versions?limit=1")
    rest = get(ann, f"/digits/versions?limit=1&cursor={page['next_cursor']}")
    assert [page["versions"][0]["version"], rest["versions"][0]["version"], rest["next_cursor"]] == [2, 1, None]
    assert ann.http.get("/api/v1/models/digits/versions?cursor=WyJ4Il0").status_code == 400


def test_registering_afterwards(api: Api, ann: Person, bob: Person) -> None:
    job = completed(api, ann, HELLO, model=b"12345", other=b"1")
    answer = ann.http.post("/api/v1/models/later/versions", json={"job": job})
    assert (answer.status_code, answer.headers["location"]) == (201, "/api/v1/models/later/versions/1")
    assert (answer.json()["files"]["files"], answer.json()["files"]["bytes"]) == (2, 6)
    again = ann.http.post("/api/v1/models/later/versions", json={"job": job})
    assert (again.status_code, again.json()["version"]) == (200, 1)
    events = ann.http.get(f"/api/v1/jobs/{job}/events").json()["events"]
    assert [event["message"] for event in events if event["kind"] == "model"] == ["registered as later@1"]
    queued = ann.submit()["id"]
    answer = ann.http.post("/api/v1/models/later/versions", json={"job": queued})
    assert (answer.status_code, code_of(answer)) == (409, "conflict")
    assert "only the results of a COMPLETED job" in answer.json()["detail"]
    assert bob.http.post("/api/v1/models/later/versions", json={"job": job}).status_code == 404
    assert ann.http.post("/api/v1/models/a@b/versions", json={"job": job}).status_code == 400
    empty = ann.submit()["id"]
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(empty, state)
    answer = ann.http.post("/api/v1/models/later/versions", json={"job": empty})
    assert (answer.status_code, code_of(answer)) == (410, "results_gone")


def test_a_version_is_downloaded_and_its_files_listed(api: Api, ann: Person) -> None:
    completed(api, ann, model=b"weights", log=b"x")
    assert [(file["path"], file["size"]) for file in get(ann, "/digits/versions/1/files")["files"]] == [
        ("log", 1),
        ("model", 7),
    ]
    answer = ann.http.get("/api/v1/models/digits/versions/latest/download")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert archive.read("model") == b"weights"


def test_stages_move_and_their_history_is_kept(api: Api, ann: Person) -> None:
    for _ in range(2):
        completed(api, ann)

    def put(stage: str, version: str) -> Any:
        return ann.http.put(f"/api/v1/models/digits/stages/{stage}", json={"version": version})

    assert put("production", "1").json()["stages"] == {"production": 1}
    assert put("staging", "production").json()["stages"] == {"production": 1, "staging": 1}
    assert put("production", "latest").json()["stages"] == {"production": 2, "staging": 1}
    assert put("production", "2").status_code == 200
    moves = get(ann, "/digits")["promotions"]
    assert [(move["stage"], move["version"], move["user"]) for move in moves] == [
        ("production", 2, ann.name), ("staging", 1, ann.name), ("production", 1, ann.name),
    ]  # fmt: skip
    assert get(ann, "/digits/versions/production")["stages"] == ["production"]
    assert put("latest", "1").status_code == put("Prod", "1").status_code == put("7", "1").status_code == 400
    assert put("production", "9").status_code == 404
    assert ann.http.delete("/api/v1/models/digits/stages/staging").json()["stages"] == {"production": 2}
    assert ann.http.delete("/api/v1/models/digits/stages/staging").status_code == 404
    viewer = api.person("viewer", ann.project_id)
    assert viewer.http.get("/api/v1/models/digits").status_code == 200
    assert viewer.http.put("/api/v1/models/digits/stages/x", json={"version": "1"}).status_code == 403


def test_the_notes_of_a_version_can_be_changed(api: Api, ann: Person, bob: Person) -> None:
    completed(api, ann)
    completed(api, ann)

    def patch(who: Person, version: str, body: Any) -> int:
        return who.http.patch(f"/api/v1/models/digits/versions/{version}", json=body).status_code

    assert ann.http.put("/api/v1/models/digits/stages/best", json={"version": "1"}).status_code == 200
    answer = ann.http.patch("/api/v1/models/digits/versions/best", json={"notes": "**good**\nat night"})
    assert (answer.status_code, answer.json()["version"], answer.json()["stages"]) == (200, 1, ["best"])
    assert [row["notes"] for row in get(ann, "/digits/versions")["versions"]] == ["", "**good**\nat night"]
    assert patch(ann, "1", {"notes": "a\0b"}) == patch(ann, "1", {}) == 400
    assert patch(api.person("viewer", ann.project_id), "1", {"notes": ""}) == 403
    assert patch(bob, "1", {"notes": ""}) == patch(ann, "7", {"notes": ""}) == 404
    assert get(ann, "/digits/versions/1")["notes"] == "**good**\nat night"
    assert patch(ann, "1", {"notes": ""}) == 200
    assert get(ann, "/digits/versions/1")["notes"] == ""


def test_another_projects_models_are_not_there(api: Api, ann: Person, bob: Person) -> None:
    completed(api, ann)
    assert get(bob, "")["models"] == []
    for path in ("", "/versions", "/versions/1", "/versions/1/files", "/versions/1/download"):
        assert bob.http.get(f"/api/v1/models/digits{path}").status_code == 404
    assert bob.http.delete("/api/v1/models/digits").status_code == 404
    assert bob.http.put("/api/v1/models/digits/stages/x", json={"version": "1"}).status_code == 404
    answer = bob.http.post("/api/v1/jobs", json={"manifest": STARTS % 1})
    assert answer.json()["problems"][0]["message"] == "no model 'digits' in this project"


def test_a_job_keeps_the_version_that_its_model_meant_at_submission(api: Api, ann: Person) -> None:
    parent = completed(api, ann)
    child = ann.submit(STARTS % "latest")["id"]
    assert ann.http.get(f"/api/v1/jobs/{child}").json()["pretrained_model"] == "digits@1"
    completed(api, ann)  # digits@2
    for _ in range(2):  # a retry takes the same
        attempt = api.attempt(child)
        [agent] = attempt.agents
        spec = agent.start()
        assert (spec["model"]["reference"], spec["pretrained"], spec["registers"]) == ("digits@1", None, True)
        listed = agent.post("objects", space="pretrained", op="list").json()["objects"]
        assert listed == [{"key": "model", "size": 7}]
        [url] = agent.post("objects", space="pretrained", op="get", keys=["model"]).json()["urls"].values()
        assert f"{parent}/results/model" in url
        for op in ("put", "delete"):
            assert agent.post("objects", space="pretrained", op=op, keys=["model"]).status_code == 400
        api.end_attempt(attempt)
    api.context.objects.put(results_prefix(ann.project_id, child) + "model", b"tuned")
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(child, state)
    version = get(ann, "/digits/versions/3")
    assert (version["parent"], version["job"]) == ("digits@1", child)
    assert get(ann, "/digits/versions/1")["children"] == ["digits@3"]
    again = ann.http.post(f"/api/v1/jobs/{child}/rerun").json()["id"]
    assert ann.http.get(f"/api/v1/jobs/{again}").json()["pretrained_model"] == "digits@3", "latest means another now"
    other = api.attempt(ann.submit()["id"]).agents[0]
    other.start()
    assert other.post("objects", space="pretrained", op="list").status_code == 400


@pytest.mark.parametrize("version", ["9", "production"])
def test_a_reference_that_means_nothing_is_refused_at_submission(api: Api, ann: Person, version: str) -> None:
    completed(api, ann)
    answer = ann.http.post("/api/v1/jobs", json={"manifest": STARTS % version})
    [found] = answer.json()["problems"]
    assert (answer.status_code, found["path"], found["found"]) == (400, "data_stores[0].model", f"digits@{version}")
    assert "its latest is 1" in found["message"]


def test_objects_that_are_gone_or_changed_are_noticed(api: Api, ann: Person) -> None:
    job = completed(api, ann, HELLO, model=b"weights", other=b"x")
    assert ann.http.post("/api/v1/models/digits/versions", json={"job": job}).status_code == 201
    prefix = results_prefix(ann.project_id, job)
    api.context.objects.delete([prefix + "other"])
    answer = ann.http.get("/api/v1/models/digits/versions/1/download")
    assert (answer.status_code, code_of(answer)) == (410, "results_gone")
    assert "1 file of 7 bytes at Weft's own store now, 2 files of 8 bytes then" in answer.json()["detail"]
    api.context.objects.delete([prefix + "model"])
    answer = ann.http.get("/api/v1/models/digits/versions/1/files")
    assert "model digits@1: its objects are gone" in answer.json()["detail"]
    answer = ann.http.post("/api/v1/jobs", json={"manifest": STARTS % 1})
    assert "its objects are gone" in answer.json()["problems"][0]["message"]
    assert ann.http.get("/api/v1/models/digits/versions/1").status_code == 200, "its lineage is still known"


def test_deleting(api: Api, ann: Person) -> None:
    jobs = [completed(api, ann) for _ in range(3)]
    ann.http.put("/api/v1/models/digits/stages/production", json={"version": "1"})
    answer = ann.http.delete("/api/v1/models/digits/versions/1")
    assert (answer.status_code, code_of(answer)) == (409, "conflict")
    ann.submit(STARTS % 2)
    assert "starts from" in ann.http.delete("/api/v1/models/digits/versions/2").json()["detail"]
    assert ann.http.delete("/api/v1/models/digits").status_code == 409
    assert ann.http.delete("/api/v1/models/digits/versions/latest").status_code == 400
    assert ann.http.delete("/api/v1/models/digits/versions/3").status_code == 204
    assert ann.http.delete("/api/v1/models/digits/versions/3").status_code == 404
    held = results_prefix(ann.project_id, jobs[2]) + "model"
    assert api.context.objects.head(held), "the job still has its results"
    # Without their job, the objects are the version's alone.
    ann.http.delete("/api/v1/models/digits/stages/production")
    with api.context.database.transaction() as session:
        session.delete(session.get_one(Job, jobs[0]))
    assert ann.http.get("/api/v1/models/digits/versions/1/download").status_code == 200
    with backup(api):
        answer = ann.http.delete("/api/v1/models/digits/versions/1")
        assert (answer.status_code, code_of(answer)) == (409, "conflict")
        assert "a backup is being made" in answer.json()["detail"]
        assert api.context.objects.head(results_prefix(ann.project_id, jobs[0]) + "model")
    assert ann.http.delete("/api/v1/models/digits/versions/1").status_code == 204
    assert api.context.objects.head(results_prefix(ann.project_id, jobs[0]) + "model") is None


def test_a_version_in_a_store_of_the_users_own(api: Api, ann: Person, servers: Servers) -> None:
    own = servers.bucket()
    secret = own.secret_key.get_secret_value()
    store = (
        f"data_stores: [{{id: d, connection: {{auth_url: '{own.endpoint}', user_name: {own.access_key}, "
        f"password: {secret}}}, training_results: {{container: {own.bucket}, prefix: a, model: digits}}}}]\n"
    )
    job = ann.submit(HELLO + store)["id"]
    client = make_client(own.endpoint, None, own.access_key, secret)
    client.put_object(Bucket=own.bucket, Key=f"a/{job}/model", Body=b"weights")
    client.put_object(Bucket=own.bucket, Key=f"a/{job}x/model", Body=b"not its own")
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job, state)
    told = ann.http.get("/api/v1/models/digits/versions/1")
    assert told.json()["place"] == f"{own.endpoint}:{own.bucket}/a/{job}/"
    assert secret not in told.text
    with api.context.database.transaction() as session:
        session.delete(session.get_one(Job, job))  # and its credentials with it
    assert [file["path"] for file in get(ann, "/digits/versions/1/files")["files"]] == ["model"]
    child = ann.submit(STARTS % 1)["id"]
    attempt = api.attempt(child)
    [agent] = attempt.agents
    pretrained = agent.start()["pretrained"]
    assert (pretrained["container"], pretrained["prefix"]) == (own.bucket, f"a/{job}")
    assert agent.post("objects", space="pretrained", op="list").status_code == 400, "only of the installation's own"
    api.end_attempt(attempt)
    api.set_state(child, "HALTED")
    assert ann.http.delete("/api/v1/models/digits").status_code == 204
    assert client.get_object(Bucket=own.bucket, Key=f"a/{job}/model")["Body"].read() == b"weights"
    gone = api.attempt(child).agents[0].post("start", hostname="here")
    assert "the version that digits@1 meant at submission has been deleted" in gone.json()["detail"]


def test_a_version_whose_data_store_is_gone(api: Api, ann: Person, servers: Servers) -> None:
    own = servers.bucket()
    secret = own.secret_key.get_secret_value()
    store = {"name": "cos", "endpoint": own.endpoint, "user_name": own.access_key, "password": secret}
    assert ann.http.post("/api/v1/datastores", json=store).status_code == 201
    job = ann.submit(
        HELLO + f"data_stores: [{{datastore: cos, training_results: {{container: {own.bucket}, model: digits}}}}]"
    )["id"]
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job, state)
    assert get(ann, "/digits/versions/1")["place"] == f"cos:{own.bucket}/{job}/"
    assert ann.http.delete("/api/v1/datastores/cos").status_code == 204
    answer = ann.http.get("/api/v1/models/digits/versions/1/download")
    assert (answer.status_code, code_of(answer)) == (410, "results_gone")
    assert "the data store 'cos' that the model is in has been deleted" in answer.json()["detail"]
    answer = ann.http.post("/api/v1/jobs", json={"manifest": STARTS % 1})
    assert "'cos'" in answer.json()["problems"][0]["message"]
