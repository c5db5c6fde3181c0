"""Submitting, listing and changing jobs."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from sqlalchemy import select
from tests.api.conftest import HELLO, Api, Person, code_of, zipped

from weft_core.objects import code_key
from weft_core.store.models import Attempt, Event, Job, MlflowRun, Secret


def test_a_submitted_job_is_durable_and_shown_as_it_is(api: Api, ann: Person) -> None:
    answer = ann.http.post("/api/v1/jobs", json={"manifest": HELLO, "set": {"learners": "2", "labels.team": "x"}})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert (job["name"], job["state"], job["learners"], job["labels"]) == ("hello", "QUEUED", 2, {"team": "x"})
    assert (job["project"], job["user"]) == (ann.project, ann.name)
    assert job["framework"]["command"] == "echo hello"
    detail = ann.http.get(answer.headers["location"]).json()
    assert detail["manifest"]["framework"]["command"] == "echo hello"
    assert detail["attempts"] == []
    assert detail["queue_position"] >= 1
    with api.context.database.transaction() as session:
        row = session.get_one(Job, job["id"])
        assert row.next_step_at is not None, "the sweep has to find it even when the wake-up was lost"
        assert session.scalar(select(Event.message).where(Event.job_id == row.id)) == "submitted to engine local"


def test_multipart_with_code(api: Api, ann: Person) -> None:
    bundle = zipped(train__py="print('hi')")
    answer = ann.http.post(
        "/api/v1/jobs",
        data={"manifest": HELLO, "set": ["learners=2", "priority=70"]},
        files={"code": ("code.zip", bundle, "application/zip")},
    )
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["learners"], job["priority"]) == (2, 70)
    assert api.context.objects.get(code_key(ann.project_id, job["code_sha256"])) == bundle
    assert ann.http.get(f"/api/v1/jobs/{job['id']}/definition").content == bundle


def test_multipart_takes_the_manifest_as_a_file(ann: Person) -> None:
    answer = ann.http.post("/api/v1/jobs", files={"manifest": ("manifest.yml", HELLO, "application/octet-stream")})
    assert answer.status_code == 201, answer.text


def test_attempts_are_shown_with_their_learners(api: Api, ann: Person) -> None:
    job = ann.submit(set={"learners": "2"})
    attempt = api.attempt(job["id"])
    attempt.agents[1].start()
    attempt.agents[1].post("exit", exit_code=3, reason="exit code 3", last_lines=["a\0b"])
    shown = ann.http.get(f"/api/v1/jobs/{job['id']}").json()["attempts"]
    assert [row["n"] for row in shown] == [1]
    assert [(learner["learner"], learner["phase"], learner["exit_code"]) for learner in shown[0]["learners"]] == [
        (1, "WAITING", None),
        (2, "EXITED", 3),
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"manifest": "learners: two"}, "invalid_manifest"),
        ({"manifest": ""}, "invalid_manifest"),
        ({"manifest": "a: &a [*a]"}, "invalid_manifest"),
        ({"manifest": HELLO + "secrets: {KEY: nothing-like-it}"}, "invalid_manifest"),
        (
            {"manifest": HELLO + "data_stores: [{id: d, datastore: gone, training_data: {container: c}}]"},
            "invalid_manifest",
        ),
        ({"manifest": HELLO, "set": {"nonsense": "1"}}, "invalid_manifest"),
        ({"manifest": HELLO, "code_sha256": "0" * 64}, "code_missing"),
        ({"manifest": HELLO, "code_sha256": "x"}, "invalid_request"),
        ({"manifest": HELLO, "extra": 1}, "invalid_request"),
        ({"manifest": 5}, "invalid_request"),
        ({"manifest": "name: \ud800"}, "invalid_manifest"),
        ([], "invalid_request"),
        ({}, "invalid_request"),
    ],
)
def test_bad_submissions_say_why(ann: Person, body: Any, code: str) -> None:
    answer = ann.http.post("/api/v1/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert code_of(answer) == code
    assert answer.json()["detail"]


def test_manifest_problems_have_path_line_and_what_is_accepted(ann: Person) -> None:
    problem = ann.http.post("/api/v1/jobs", json={"manifest": "name: x\nlearners: two\ncpuss: 1\n"}).json()
    by_path = {entry["path"]: entry for entry in problem["problems"]}
    assert by_path["learners"]["line"] == 2
    assert "two" in by_path["learners"]["found"]
    assert "did you mean 'cpus'" in by_path["cpuss"]["message"]
    assert "framework" in by_path


def test_broken_bodies(ann: Person) -> None:
    post = ann.http.post
    assert (
        code_of(post("/api/v1/jobs", content=b"{", headers={"Content-Type": "application/json"})) == "invalid_request"
    )
    assert code_of(post("/api/v1/jobs", content=b"x" * 10, headers={"Content-Type": "text/plain"})) == (
        "unsupported_media_type"
    )
    for broken in (b"--b\r\n", b"", b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n"):
        answer = post("/api/v1/jobs", content=broken, headers={"Content-Type": "multipart/form-data; boundary=b"})
        assert answer.status_code == 400, answer.text
    answer = post("/api/v1/jobs", data={"manifest": HELLO}, files={"code": ("c.zip", b"no zip", "application/zip")})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_bundle")
    answer = post("/api/v1/jobs", content=b"[" * 100_000, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def test_ten_megabytes_of_yaml(ann: Person) -> None:
    huge = "x: " + "y" * (10 << 20)
    for answer in (
        ann.http.post("/api/v1/jobs", json={"manifest": huge}),
        ann.http.post("/api/v1/manifests:validate", content=huge),
    ):
        assert (answer.status_code, code_of(answer)) == (413, "too_large")
        assert "MiB" in answer.json()["detail"]


def test_a_body_without_a_length_is_cut_off_too(ann: Person) -> None:
    answer = ann.http.post("/api/v1/manifests:validate", content=(b"x" * 65536 for _ in range(40)))
    assert (answer.status_code, code_of(answer)) == (413, "too_large")


def test_credentials_of_a_manifest_never_come_out(api: Api, ann: Person) -> None:
    s3 = api.settings.s3
    password = s3.secret_key.get_secret_value()
    manifest = f"""
name: stored
framework: {{name: pytorch, command: 'true'}}
data_stores:
- id: mine
  connection: {{auth_url: '{s3.endpoint}', user_name: '{s3.access_key}', password: '{password}'}}
  training_data: {{container: {s3.bucket}}}
  training_results: {{container: {s3.bucket}, prefix: out}}
"""
    job = ann.submit(manifest)
    detail = ann.http.get(f"/api/v1/jobs/{job['id']}").text
    assert password not in detail
    assert s3.access_key not in detail
    with api.context.database.transaction() as session:
        kept = session.scalars(select(Secret).where(Secret.job_id == job["id"])).one()
        assert password.encode() not in kept.ciphertext
    assert ann.http.get("/api/v1/secrets").json() == {"secrets": []}


def test_validate_answers_what_the_manifest_means(ann: Person) -> None:
    answer = ann.http.post("/api/v1/manifests:validate?set=learners=3", content=HELLO)
    assert answer.status_code == 200, answer.text
    assert answer.json()["valid"] is True
    assert answer.json()["manifest"]["learners"] == 3
    assert code_of(ann.http.post("/api/v1/manifests:validate?set=learners", content=HELLO)) == "invalid_request"
    assert code_of(ann.http.post("/api/v1/manifests:validate", content=b"\xff\xfe")) == "invalid_manifest"


def test_lists_are_paged_newest_first_and_filtered(ann: Person) -> None:
    ids = [ann.submit(set={"name": f"job {n}", "labels.n": str(n % 2)})["id"] for n in range(5)]
    ids.reverse()
    pages, cursor = [], None
    while True:
        page = ann.http.get("/api/v1/jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        pages.append([job["id"] for job in page["jobs"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert pages == [ids[:2], ids[2:4], ids[4:]]

    def found(**params: Any) -> list[str]:
        return [job["id"] for job in ann.http.get("/api/v1/jobs", params=params).json()["jobs"]]

    assert found(label="n=1") == [ids[1], ids[3]]
    assert found(label=["n=1", "n=0"]) == []
    assert found(q="JOB 3") == [ids[1]]
    assert found(q="%") == [], "a percent sign is no wildcard"
    assert found(state=["QUEUED", "FAILED"]) == ids
    assert found(state="COMPLETED") == []
    assert found(since="1h") == ids
    assert (found(engine="local", user=ann.name), found(engine="ray"), found(user="nobody")) == (ids, [], [])
    assert found(since="2999-01-01") == []
    assert found(since=str(32503680000000)) == []


@pytest.mark.parametrize(
    "query",
    [
        *("cursor=x", "cursor=WyJhIiwiYiJd", "cursor=WzFd", "limit=0", "limit=9999", "limit=x", "state=NONE"),
        *(
            "label=x",
            "since=yesterday",
            "since=99999999999999999999",
            "since=999999999d",
            "q=%00",
            "user=%00",
            "label=a=%00",
            "param=a=%00",
        ),
    ],
)
def test_bad_queries(ann: Person, query: str) -> None:
    answer = ann.http.get(f"/api/v1/jobs?{query}")
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request"), answer.text


def test_halt_and_delete_set_what_is_desired_and_can_be_repeated(api: Api, ann: Person) -> None:
    job = ann.submit()
    attempt = api.attempt(job["id"])
    for _ in range(2):
        answer = ann.http.post(f"/api/v1/jobs/{job['id']}/halt", json={"grace_seconds": 7})
        assert (answer.status_code, answer.json()["desired"]) == (202, "HALTED")
    with api.context.database.transaction() as session:
        assert session.get_one(Attempt, attempt.id).grace_seconds == 7
    api.end_attempt(attempt)
    assert code_of(ann.http.post(f"/api/v1/jobs/{job['id']}/resume")) == "conflict"
    api.set_state(job["id"], "HALTED")
    answer = ann.http.post(f"/api/v1/jobs/{job['id']}/resume")
    assert (answer.status_code, answer.json()["state"], answer.json()["desired"]) == (202, "QUEUED", "RUNNING")
    for _ in range(2):
        answer = ann.http.delete(f"/api/v1/jobs/{job['id']}")
        assert (answer.status_code, answer.json()["desired"]) == (202, "DELETED")
    assert code_of(ann.http.post(f"/api/v1/jobs/{job['id']}/halt")) == "conflict"


def test_a_finished_job_can_be_neither_halted_nor_resumed(api: Api, ann: Person) -> None:
    job = ann.submit()
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job["id"], state)
    for verb in ("halt", "resume"):
        answer = ann.http.post(f"/api/v1/jobs/{job['id']}/{verb}")
        assert (answer.status_code, code_of(answer)) == (409, "conflict")
        assert "COMPLETED" in answer.json()["detail"]


FULL = """
name: everything
description: all of it
version: "1.0"
labels: {team: vision, "on": "yes"}
priority: 7
learners: 2
cpus: 0.5
gpus: 0
memory: 1.5Gb
storage: 2Gb
framework: {name: pytorch, launcher: torchrun, command: "python train.py --lr 0.1"}
data_stores:
- id: mine
  type: mount_cos
  connection: {auth_url: '%(endpoint)s', user_name: '%(access)s', password: '%(secret)s', region: eu-de}
  training_data: {container: %(bucket)s, prefix: in, mode: stream}
  training_results: {container: %(bucket)s, prefix: out}
checkpoint: {every: 90s, keep: 5}
retries: 3
max_runtime: 2h
env: {A: "1", EMPTY: "", NUL: "null", ODD: "\\x80 ü ' \\" : #"}
secrets: {WANDB: wandb}
evaluation_metrics: {type: tensorboard, in: $JOB_STATE_DIR/logs/tb, line_lookahead: 5}
notify: [{url: "https://1.1.1.1/hook", on: [COMPLETED]}]
"""


def test_a_rerun_is_the_same_job_again(api: Api, ann: Person, bob: Person) -> None:
    s3 = api.settings.s3
    values = {
        "endpoint": s3.endpoint,
        "access": s3.access_key,
        "secret": s3.secret_key.get_secret_value(),
        "bucket": s3.bucket,
    }
    ann.http.put("/api/v1/secrets/wandb", json={"value": "s3cr3t"})
    bundle = zipped(train__py="pass")
    answer = ann.http.post("/api/v1/jobs", data={"manifest": (FULL % values)}, files={"code": bundle})
    assert answer.status_code == 201, answer.text
    first = answer.json()
    answer = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun")
    assert answer.status_code == 201, answer.text
    second = answer.json()
    assert second["id"] != first["id"]
    assert second["rerun_of"] == first["id"]
    assert second["code_sha256"] == first["code_sha256"]
    shown = [ann.http.get(f"/api/v1/jobs/{job['id']}").json()["manifest"] for job in (first, second)]
    assert shown[0] == shown[1]
    written = ann.http.get(f"/api/v1/jobs/{first['id']}/manifest")
    assert written.headers["Content-Type"].startswith("text/yaml")
    assert yaml.safe_load(written.text)["env"]["EMPTY"] == ""
    assert values["secret"] not in written.text
    assert values["access"] not in written.text
    spec = api.attempt(second["id"]).agents[0].start()
    assert spec["data"][0]["location"]["secret_key"] == values["secret"]
    assert spec["results"]["prefix"] == f"out/{second['id']}"
    changed = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"set": {"learners": "3", "env.A": "2"}}).json()
    assert changed["learners"] == 3
    answer = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"set": {"learners": "none"}})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_manifest")
    # The edited manifest with other code; the credentials stay those of the job.
    less = yaml.safe_load(written.text)
    del less["labels"], less["env"]
    text = yaml.safe_dump(less)
    check = "/api/v1/manifests:validate"
    assert code_of(ann.http.post(check, content=text)) == "invalid_manifest"
    assert ann.http.post(check, content=text, params={"rerun_of": first["id"]}).status_code == 200
    assert ann.http.post(check, content=text, params={"rerun_of": "job-none"}).status_code == 404
    assert bob.http.post(check, content=text, params={"rerun_of": first["id"]}).status_code == 404
    other = zipped(train__py="print()")
    sha256 = hashlib.sha256(other).hexdigest()
    body = {"manifest": text, "code_sha256": sha256}
    answer = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json=body)
    assert code_of(answer) == "code_missing"
    ann.http.put(f"/api/v1/code/{sha256}", content=other, headers={"Content-Type": "application/zip"})
    edited = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json=body).json()
    assert (edited["labels"], edited["code_sha256"], edited["rerun_of"]) == ({}, sha256, first["id"])
    assert api.attempt(edited["id"]).agents[0].start()["data"][0]["location"]["secret_key"] == values["secret"]


def test_only_its_own_project_keeps_a_job_alive(api: Api, ann: Person, bob: Person) -> None:
    body = {"manifest": HELLO, "keepalive": {"seconds": 45, "idle_seconds": 600}}
    made = ann.http.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": "k-alive"})
    assert made.status_code == 201, made.text
    job_id = made.json()["id"]
    other = ann.http.post("/api/v1/jobs", json=body | {"keepalive": None}, headers={"Idempotency-Key": "k-alive"})
    assert other.status_code == 409, "another lease is another request"
    path = f"/api/v1/jobs/{job_id}/keepalive"
    assert bob.http.put(path).status_code == 404
    assert bob.http.get(f"/api/v1/jobs/{job_id}/manifest").status_code == 404
    first = datetime.fromisoformat(ann.http.put(path).json()["until"])
    second = datetime.fromisoformat(ann.http.put(path).json()["until"])
    assert timedelta(0) <= second - first < timedelta(seconds=10)
    assert ann.http.post(f"/api/v1/jobs/{job_id}/halt").status_code == 202
    assert ann.http.put(path).status_code == 409
    plain = ann.submit()["id"]
    assert ann.http.put(f"/api/v1/jobs/{plain}/keepalive").json() == {"until": None}


def test_labels_description_notes_and_pin_can_be_edited(api: Api, ann: Person, bob: Person) -> None:
    job = ann.submit(set={"labels.team": "vision", "labels.old": "x", "description": "first words"})
    path = f"/api/v1/jobs/{job['id']}"
    changes = {
        "labels": {"old": None, "stage": "final"},
        "description": "second words",
        "notes": "a\nb",
        "pinned": True,
    }
    answer = ann.http.patch(path, json=changes)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["labels"], answer.json()["pinned"]) == ({"team": "vision", "stage": "final"}, True)
    detail = ann.http.get(path).json()
    assert (detail["description"], detail["notes"]) == ("second words", "a\nb")
    assert detail["manifest"]["labels"] == detail["labels"], "a rerun has them, too"
    event = ann.http.get(f"{path}/events", params={"follow": False}).json()["events"][-1]
    assert (event["kind"], event["user"]) == ("edited", ann.name)
    assert event["message"] == "labelled stage=final; label old removed; description changed; notes changed; pinned"

    def found(**params: Any) -> list[str]:
        return [listed["id"] for listed in ann.http.get("/api/v1/jobs", params=params).json()["jobs"]]

    other = ann.submit()["id"]
    assert (found(label="stage=final"), found(label="old=x")) == ([job["id"]], [])
    assert (found(q="second words"), found(q="first words")) == ([job["id"]], [])
    assert (found(pinned=True), found()) == ([job["id"]], [other, job["id"]])
    assert ann.http.patch(path, json=changes).status_code == 200
    assert ann.http.get(f"{path}/events", params={"follow": False}).json()["events"][-1]["id"] == event["id"]
    viewer = api.person("viewer", ann.project_id)
    assert code_of(viewer.http.patch(path, json={"pinned": False})) == "forbidden"
    assert bob.http.patch(path, json={"pinned": False}).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"labels": {"": "x"}},
        {"labels": {"a" * 64: "x"}},
        {"labels": {"a": "x" * 256}},
        {"labels": {"a": "\x1b[31m"}},
        {"labels": {str(n): "x" for n in range(65)}},
        {"labels": {"a": "\0"}},
        {"description": "x" * 16_385},
        {"notes": "\0"},
        {"name": "x"},
    ],
)
def test_edits_that_no_manifest_could_have(ann: Person, body: Any) -> None:
    answer = ann.http.patch(f"/api/v1/jobs/{ann.submit()['id']}", json=body)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request"), answer.text


def test_jobs_are_sorted_by_duration(api: Api, ann: Person) -> None:
    ids = [ann.submit()["id"] for _ in range(5)]
    now = datetime.now(UTC)
    minutes = {0: (60, 50), 1: (40, None), 2: (300, 270), 3: (5, None)}  # started and ended so long ago
    with api.context.database.transaction() as session:
        for number, (started, ended) in minutes.items():
            row = session.get_one(Job, ids[number])
            row.started_at = now - timedelta(minutes=started)
            row.ended_at = None if ended is None else now - timedelta(minutes=ended)

    def pages(sort: str) -> list[str]:
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            params: dict[str, Any] = {"sort": sort, "limit": 2, **({"cursor": cursor} if cursor else {})}
            answer = ann.http.get("/api/v1/jobs", params=params).json()
            found += [job["id"] for job in answer["jobs"]]
            cursor = answer["next_cursor"]
        return found

    assert pages("-duration") == [ids[n] for n in (1, 2, 0, 3, 4)]
    assert pages("duration") == [ids[n] for n in (3, 0, 2, 1, 4)]


def test_jobs_are_found_by_parameters(api: Api, ann: Person, bob: Person) -> None:
    jobs = [ann.submit(), ann.submit(), ann.submit(), bob.submit()]
    logged = [{"lr": "0.1", "opt": "adam"}, {"lr": "0.1", "opt": "sgd"}, {"lr": "0.2"}, {"lr": "0.1"}]
    with api.context.database.transaction() as session:
        for job, params in zip(jobs, logged, strict=True):
            row = session.get_one(Job, job["id"])
            entries = {name: [value, 1, 0] for name, value in params.items()}
            run = MlflowRun(
                id=row.id, project_id=row.project_id, job_id=row.id, experiment_id="x", user="u", status="RUNNING"
            )
            run.start_time, run.params = 0, entries
            session.add(run)

    def found(*params: str) -> list[str]:
        answer = ann.http.get("/api/v1/jobs", params={"param": list(params)}).json()
        return [job["id"] for job in answer["jobs"]]

    ids = [job["id"] for job in jobs]
    assert found("lr=0.1") == [ids[1], ids[0]]
    assert found("lr=0.1", "opt=adam") == [ids[0]]
    assert (found("lr=0.10"), found("opt=0.1"), len(found("lr"))) == ([], [], 3)
    shown = ann.http.get("/api/v1/jobs", params={"param": "lr=0.2"}).json()["jobs"]
    assert [job["params"] for job in shown] == [{"lr": "0.2"}]
