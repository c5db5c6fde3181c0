"""The checkpoints of a job, and jobs that begin with those of another: in the installation's store and in users'."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import HELLO, Api, Person, code_of

from weft_core.objects import Bucket, S3Store, StoreError
from weft_core.settings import OutgoingSettings, Settings
from weft_trainer.checkpoints.restoring import Restoring
from weft_trainer.spec import S3Location
from weft_trainer.stores.s3 import S3Store as LearnersStore

USERS = """
name: hello
framework: {{name: python, command: echo hello}}
data_stores:
  - id: mine
    type: s3
    connection: {{auth_url: "{endpoint}", user_name: "{access}", password: "{secret}"}}
    training_results: {{container: {bucket}, prefix: {prefix}}}
"""


@pytest.fixture(scope="module")
def api_settings(api_settings: Settings) -> Settings:
    return api_settings.model_copy(update={"outgoing": OutgoingSettings(allow=["localhost"])})


def users_manifest(api: Api, prefix: str) -> str:
    s3 = api.settings.s3
    return USERS.format(
        endpoint=s3.endpoint,
        access=s3.access_key,
        secret=s3.secret_key.get_secret_value(),
        bucket=s3.bucket,
        prefix=prefix,
    )


def prefix_of(person: Person, job: dict[str, Any], users: bool) -> str:
    return f"mine/_checkpoints/{job['id']}/" if users else f"jobs/{person.project_id}/{job['id']}/checkpoints/"


def put(
    store: Bucket,
    prefix: str,
    number: int,
    files: dict[str, str],
    learner: int = 1,
    mtime_ns: int = 10**18,
    **about: Any,
) -> None:
    """A generation as a learner stores it."""
    folder = prefix + (f"learner-{learner}/" if learner > 1 else "")
    entries = []
    for path, text in files.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        store.put(f"{folder}files/{digest}", text.encode())
        entries.append({"path": path, "size": len(text), "sha256": digest, "mtime_ns": mtime_ns, "link": None})
    document = {"attempt": 1, "rank": learner - 1, "at": 1_769_847_309.5 + number, **about, "files": entries}
    store.put(f"{folder}generations/000001-{number:06d}.json", json.dumps(document).encode())


def restored(api: Api, prefix: str, folder: Path) -> dict[str, str]:
    """What a learner of the job would find."""
    s3 = api.settings.s3
    location = S3Location(s3.endpoint, s3.access_key, s3.secret_key.get_secret_value(), s3.bucket, prefix.rstrip("/"))
    folder.mkdir()
    Restoring(LearnersStore(location), 0, folder, 0, lambda _: None).run()
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("users", [False, True])
def test_a_rerun_begins_with_a_copy_of_the_last_checkpoint(api: Api, ann: Person, tmp_path: Path, users: bool) -> None:
    store = api.context.objects
    first = ann.submit(users_manifest(api, "mine") if users else HELLO)
    source = prefix_of(ann, first, users)
    put(store, source, 1, {"model": "one", "constant": "constant"}, job=first["id"])
    put(store, source, 2, {"model": "two", "constant": "constant"}, job=first["id"])
    listed = ann.http.get(f"/api/v1/jobs/{first['id']}/checkpoints").json()["checkpoints"]
    assert [(checkpoint["generation"], checkpoint["files"], checkpoint["size"]) for checkpoint in listed] == [
        ("000001-000002", 2, 11),
        ("000001-000001", 2, 11),
    ]
    assert listed[0]["at"] == "2026-01-31T08:15:11.500000Z"

    answer = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"from_checkpoint": True})
    assert answer.status_code == 201, answer.text
    second = answer.json()
    told = {"job": first["id"], "generation": "000001-000002", "attempt": 1, "files": 2, "size": 11}
    assert {key: second["checkpoint_of"][key] for key in told} == told
    events = ann.http.get(f"/api/v1/jobs/{second['id']}/events").json()["events"]
    assert [event["message"] for event in events if event["kind"] == "checkpoint"] == [
        f"begins with the checkpoint of 2026-01-31 08:15:11 UTC by attempt 1 of {first['id']}: 2 files"
    ]
    spec = api.attempt(second["id"]).agents[0].start()
    assert spec["has_checkpoint"] is True

    # Whatever happens to the first one, the second has its own.
    store.delete([stored.key for stored in store.objects(source)])
    assert restored(api, prefix_of(ann, second, users), tmp_path / "restored") == {
        "model": "two",
        "constant": "constant",
    }
    assert api.attempt(first["id"]).agents[0].start()["has_checkpoint"] is False


def test_from_one_store_to_another(api: Api, ann: Person, tmp_path: Path) -> None:
    first = ann.submit(users_manifest(api, "mine"))
    put(api.context.objects, prefix_of(ann, first, True), 1, {"model": "one"})
    # The same store by another name: nothing shows that it is the same.
    there = "data_stores[0].connection."
    changes = {
        f"{there}auth_url": api.settings.s3.endpoint.replace("127.0.0.1", "localhost"),
        f"{there}user_name": api.settings.s3.access_key,
        f"{there}password": api.settings.s3.secret_key.get_secret_value(),
    }
    body = {"set": changes, "from_checkpoint": True}
    answer = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json=body)
    assert answer.status_code == 201, answer.text
    assert restored(api, prefix_of(ann, answer.json(), True), tmp_path / "restored") == {"model": "one"}


def test_of_several_learners_all_that_may_go_together_is_copied(api: Api, ann: Person) -> None:
    first = ann.submit(set={"learners": "2"})
    source = prefix_of(ann, first, False)
    for number in (1, 2):
        put(api.context.objects, source, number, {"shard-1": f"{number}"})
    put(api.context.objects, source, 1, {"shard-2": "1"}, learner=2)
    second = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"from_checkpoint": True}).json()
    listed = ann.http.get(f"/api/v1/jobs/{second['id']}/checkpoints").json()["checkpoints"]
    assert [(checkpoint["learner"], checkpoint["generation"]) for checkpoint in listed] == [
        (1, "000001-000002"),
        (1, "000001-000001"),
        (2, "000001-000001"),
    ]


def test_a_rerun_begins_with_the_checkpoint_that_is_named(api: Api, ann: Person, tmp_path: Path) -> None:
    first = ann.submit()
    source = prefix_of(ann, first, False)
    for number in (1, 2, 3):
        put(api.context.objects, source, number, {"model": f"{number}"})
    url = f"/api/v1/jobs/{first['id']}/rerun"
    second = ann.http.post(url, json={"from_checkpoint": "000001-000002"}).json()
    assert second["checkpoint_of"]["generation"] == "000001-000002"
    assert restored(api, prefix_of(ann, second, False), tmp_path / "restored") == {"model": "2"}

    gone = ann.http.post(url, json={"from_checkpoint": "000001-000009"})
    assert (gone.status_code, code_of(gone)) == (409, "conflict")
    assert gone.json()["detail"] == (
        f"job {first['id']} does not keep checkpoint 000001-000009 (any more); "
        "it keeps 000001-000003, 000001-000002, 000001-000001"
    )
    never = ann.http.post(url, json={"from_checkpoint": "step-4"})
    assert "does not keep checkpoint step-4" in never.json()["detail"]
    for nonsense in ("", 7):
        assert ann.http.post(url, json={"from_checkpoint": nonsense}).status_code == 400


def test_of_several_learners_what_they_had_at_that_time_is_copied(api: Api, ann: Person) -> None:
    first = ann.submit(set={"learners": "2"})
    source, second = prefix_of(ann, first, False), int(1e9)
    for learner, times in ((1, [(10, 20), (20, 30), (30, 40)]), (2, [(11, 19), (21, 24), (25, 29)])):
        for number, (since, until) in enumerate(times, 1):
            put(api.context.objects, source, number, {"model": "m"}, learner, until=until, mtime_ns=since * second)
    url = f"/api/v1/jobs/{first['id']}/rerun"
    made = ann.http.post(url, json={"from_checkpoint": "000001-000002"}).json()
    listed = ann.http.get(f"/api/v1/jobs/{made['id']}/checkpoints").json()["checkpoints"]
    assert sorted((checkpoint["learner"], checkpoint["generation"]) for checkpoint in listed) == [
        (1, "000001-000002"),
        (2, "000001-000002"),
        (2, "000001-000003"),
    ]
    assert made["checkpoint_of"]["generation"] == "000001-000002"
    alone = ann.http.post(url, json={"from_checkpoint": "000001-000003"})
    assert alone.status_code == 409
    assert "nothing is kept of learner 2 from that moment" in alone.json()["detail"]


def test_without_a_checkpoint_there_is_no_job(api: Api, ann: Person) -> None:
    first = ann.submit()
    before = len(ann.http.get("/api/v1/jobs").json()["jobs"])
    answer = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"from_checkpoint": True})
    assert (answer.status_code, code_of(answer)) == (409, "conflict")
    assert "has no complete checkpoint" in answer.json()["detail"]
    put(api.context.objects, prefix_of(ann, first, False), 1, {"model": "one"})
    store = api.context.objects
    [content] = [stored.key for stored in store.objects(prefix_of(ann, first, False)) if "/files/" in stored.key]
    store.delete([content])
    answer = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"from_checkpoint": True})
    assert code_of(answer) == "conflict"
    assert len(ann.http.get("/api/v1/jobs").json()["jobs"]) == before
    left = {stored.key.split("/")[2] for stored in store.objects(f"jobs/{ann.project_id}/")}
    assert left == {first["id"]}, "nothing of an attempt to copy is left"


def test_a_repeated_request_copies_once(api: Api, ann: Person) -> None:
    first = ann.submit()
    put(api.context.objects, prefix_of(ann, first, False), 1, {"model": "one"})
    url, key = f"/api/v1/jobs/{first['id']}/rerun", {"Idempotency-Key": "again"}
    jobs = [ann.http.post(url, json={"from_checkpoint": True}, headers=key).json()["id"] for _ in range(2)]
    assert jobs[0] == jobs[1]
    other = ann.http.post(url, json={}, headers=key)
    assert code_of(other) == "idempotency_conflict"
    kept = {stored.key.split("/")[2] for stored in api.context.objects.objects(f"jobs/{ann.project_id}/")}
    assert kept == {first["id"], jobs[0]}


def test_other_projects_checkpoints_are_not_there(api: Api, ann: Person, bob: Person) -> None:
    first = ann.submit()
    put(api.context.objects, prefix_of(ann, first, False), 1, {"model": "one"})
    assert bob.http.get(f"/api/v1/jobs/{first['id']}/checkpoints").status_code == 404
    answer = bob.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"from_checkpoint": True})
    assert answer.status_code == 404


def test_what_somebody_else_wrote_there_is_no_checkpoint(api: Api, ann: Person) -> None:
    first = ann.submit()
    place = prefix_of(ann, first, False) + "generations/"
    for number, text in enumerate(
        ["{", "[]", '{"files": 3}', '{"files": [{"path": "x", "size": 1, "sha256": "../../code/x"}]}']
    ):
        api.context.objects.put(f"{place}000001-00000{number}.json", text.encode())
    assert ann.http.get(f"/api/v1/jobs/{first['id']}/checkpoints").json() == {"checkpoints": []}


def test_a_store_that_refuses_leaves_nothing_behind(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ann.submit(users_manifest(api, "mine"))
    put(api.context.objects, prefix_of(ann, first, True), 1, {"model": "one", "other": "two"})
    real, copied = S3Store.copy, []

    def copy(self: S3Store, key: str, target: Bucket, target_key: str, *, inside: bool) -> None:
        if "generations/" in key:
            raise StoreError("access denied", "credentials")
        copied.append(target_key)
        real(self, key, target, target_key, inside=inside)

    monkeypatch.setattr(S3Store, "copy", copy)
    answer = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"from_checkpoint": True})
    assert (answer.status_code, code_of(answer)) == (400, "store_refused")
    assert len(copied) == 2
    assert [key for key in copied if api.context.objects.head(key)] == []
