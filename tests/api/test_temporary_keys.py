"""A store that projects share: each project has its own buckets there, a learner keys for its inputs and results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.api.conftest import Api, Attempted, Person, code_of
from tests.servers import Servers

from weft_api.storage import temporary_keys
from weft_core.settings import Settings
from weft_core.setup import share_datastore, space_of
from weft_core.store.models import Project
from weft_workers.ended_keys import EndedKeys, deny

MANIFEST = """
name: keys
framework: {name: python, command: echo hello}
learners: 2
data_stores:
  - id: s3
    datastore: default
    training_data: {container: digits, prefix: set1}
    training_results: {container: results}
"""


@pytest.fixture(scope="module")
def api_settings(api_settings: Settings, servers: Servers) -> Settings:
    return api_settings.model_copy(update={"datastore": servers.shared_store()})


def project(api: Api) -> Person:
    """The owner of a project that the API has made, with the data that MANIFEST names."""
    person = api.person()
    with api.context.database.transaction() as session:
        share_datastore(session, api.settings, session.get_one(Project, person.project_id))
    for key in ("set1/a", "set10/b"):
        put(person, "digits", key, f"{person.name}'s {key}")
    assert person.http.put("/api/v1/datastores/default/containers/results").status_code == 204
    return person


@pytest.fixture
def ann(api: Api) -> Person:
    return project(api)


@pytest.fixture
def bob(api: Api) -> Person:
    return project(api)


def put(person: Person, container: str, key: str, text: str) -> None:
    body = {"container": container, "key": key, "size": len(text), "create_container": True}
    answer = person.http.post("/api/v1/datastores/default/uploads", json=body)
    assert answer.status_code == 201, answer.text
    assert httpx.put(answer.json()["parts"][0]["url"], content=text).status_code == 200


def get(person: Person, container: str, key: str) -> str:
    answer = person.http.post("/api/v1/datastores/default/downloads", json={"container": container, "key": key})
    assert answer.status_code == 200, answer.text
    return httpx.get(answer.json()["url"]).text


def containers(person: Person) -> list[str]:
    answer = person.http.get("/api/v1/datastores/default/objects")
    assert answer.status_code == 200, answer.text
    found: list[str] = answer.json()["containers"]
    return found


def client(api: Api, keys: dict[str, Any], service: str = "s3") -> Any:
    make: Callable[..., Any] = boto3.client
    return make(
        service,
        endpoint_url=api.settings.datastore.endpoint,
        region_name="us-east-1",
        aws_access_key_id=keys["access_key"],
        aws_secret_access_key=keys["secret_key"],
        aws_session_token=keys.get("session_token"),
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def started(api: Api, person: Person) -> tuple[Attempted, dict[str, Any]]:
    """An attempt of MANIFEST, and the spec of its first learner."""
    attempt = api.attempt(person.submit(MANIFEST)["id"])
    return attempt, attempt.agents[0].start()


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(ClientError, match=r"AccessDenied|Forbidden"):
        call()


def test_projects_have_containers_of_the_same_name(api: Api, ann: Person, bob: Person) -> None:
    for person in (ann, bob):
        assert containers(person) == ["digits", "results"]
        assert get(person, "digits", "set1/a") == f"{person.name}'s set1/a"
    put(ann, "extra", "k", "hers")
    assert containers(bob) == ["digits", "results"]
    # Bob can not name her bucket, either.
    hers = f"{space_of(ann.project_id)}digits"
    answer = bob.http.get("/api/v1/datastores/default/objects", params={"container": hers})
    assert answer.status_code == 400, answer.text
    shown = ann.http.get("/api/v1/datastores/default").json()
    assert (shown["endpoint"], shown["user_name"]) == (api.settings.datastore.endpoint, None)
    assert api.settings.datastore.access_key not in str(shown)


def test_a_learner_reads_its_inputs_writes_its_results_and_gets_at_nothing_else(
    api: Api, ann: Person, bob: Person, servers: Servers
) -> None:
    _, spec = started(api, ann)
    [data] = [entry["location"] for entry in spec["data"]]
    assert (data["temporary"], data["access_key"], data["secret_key"]) == (True, "", "")
    assert api.settings.datastore.secret_key.get_secret_value() not in str(spec)
    s3 = client(api, spec["store_keys"])
    digits, results = (space_of(ann.project_id) + container for container in ("digits", "results"))
    mine = spec["results"]["prefix"]

    assert s3.get_object(Bucket=digits, Key="set1/a")["Body"].read().decode() == f"{ann.name}'s set1/a"
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=digits, Prefix="set1/")["Contents"]] == ["set1/a"]
    s3.put_object(Bucket=results, Key=f"{mine}/model.pt", Body=b"model")
    s3.put_object(Bucket=results, Key=f"{spec['checkpoints']['prefix']}/step", Body=b"1")
    s3.delete_object(Bucket=results, Key=f"{mine}/model.pt")

    refused(lambda: s3.get_object(Bucket=digits, Key="set10/b"))
    refused(lambda: s3.list_objects_v2(Bucket=digits))
    refused(lambda: s3.put_object(Bucket=digits, Key="set1/a", Body=b"poison"))
    refused(lambda: s3.put_object(Bucket=results, Key="job-other/model.pt", Body=b"poison"))
    refused(lambda: s3.list_objects_v2(Bucket=results))
    refused(lambda: s3.create_bucket(Bucket=f"{space_of(ann.project_id)}more"))
    refused(lambda: s3.get_object(Bucket=f"{space_of(bob.project_id)}digits", Key="set1/a"))
    theirs = {"Bucket": f"{space_of(bob.project_id)}digits", "Key": "set1/a"}
    refused(lambda: s3.copy_object(Bucket=results, Key=f"{mine}/stolen", CopySource=theirs))
    refused(lambda: s3.list_objects_v2(Bucket=api.settings.s3.bucket))
    assert s3.list_buckets()["Buckets"] == []
    with pytest.raises(ClientError):
        client(api, spec["store_keys"], "sts").get_federation_token(Name="more", DurationSeconds=3600)


def test_keys_are_renewed_as_long_as_the_attempt_lasts(api: Api, ann: Person) -> None:
    attempt, spec = started(api, ann)
    first, second = attempt.agents
    life = temporary_keys.LEARNER_SECONDS
    assert 0 < spec["store_keys"]["seconds"] <= life
    renewed = first.post("store-keys")
    assert renewed.status_code == 200, renewed.text
    digits = space_of(ann.project_id) + "digits"
    assert client(api, renewed.json()).get_object(Bucket=digits, Key="set1/a")
    answer = second.post("store-keys")
    assert (answer.status_code, code_of(answer)) == (410, "stale_attempt"), "it has no start grant"
    api.end_attempt(attempt)
    assert first.post("store-keys").status_code == 410


def test_keys_end_with_their_attempt(api: Api, ann: Person) -> None:
    attempt, spec = started(api, ann)
    other_attempt, other_spec = started(api, ann)
    ended, running = client(api, spec["store_keys"]), client(api, other_spec["store_keys"])
    digits, results = (space_of(ann.project_id) + container for container in ("digits", "results"))
    mine = f"{spec['results']['prefix']}/model.pt"
    EndedKeys(api.context.database, api.settings).end_due()
    ended.put_object(Bucket=results, Key=mine, Body=b"model")
    store = api.settings.datastore
    admin = client(api, {"access_key": store.access_key, "secret_key": store.secret_key.get_secret_value()})
    other = {"Sid": "of-others", "Effect": "Deny", "Principal": "*", "Action": "s3:GetObject"}
    policy = {"Version": "2012-10-17", "Statement": [other | {"Resource": f"arn:aws:s3:::{digits}/never"}]}
    admin.put_bucket_policy(Bucket=digits, Policy=json.dumps(policy))

    api.end_attempt(attempt)
    for _ in range(2):  # the second worker, or the same after a restart, finds it done
        EndedKeys(api.context.database, api.settings).end_due()
    refused(lambda: ended.get_object(Bucket=digits, Key="set1/a"))
    refused(lambda: ended.list_objects_v2(Bucket=digits, Prefix="set1/"))
    refused(lambda: ended.get_object(Bucket=results, Key=mine))
    refused(lambda: ended.put_object(Bucket=results, Key=mine, Body=b"poison"))
    assert running.get_object(Bucket=digits, Key="set1/a"), "keys of other attempts stay"
    assert get(ann, "digits", "set1/a") == f"{ann.name}'s set1/a"
    statements = json.loads(admin.get_bucket_policy(Bucket=digits)["Policy"])["Statement"]
    assert [statement["Sid"] for statement in statements] == ["of-others", "WeftEndedAttempts"]

    api.end_attempt(other_attempt)
    EndedKeys(api.context.database, api.settings).end_of_job(other_attempt.job_id)  # as before a job is deleted
    refused(lambda: running.get_object(Bucket=digits, Key="set1/a"))


def test_a_policy_names_the_last_of_many_attempts() -> None:
    first = deny({"Version": "2012-10-17", "Statement": []}, "bucket", {"weft-att-000"})
    assert first is not None
    assert deny(first, "bucket", {"weft-att-000"}) is None
    full = deny(first, "bucket", {f"weft-att-{number:016}" for number in range(1000)})
    assert full is not None
    assert len(json.dumps(full)) < 20 * 1024
    assert 'weft-att-000"' not in json.dumps(full)


def test_keys_are_issued_once_for_a_gang_and_anew_when_they_are_no_longer_fresh(
    api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, spec = started(api, ann)
    other = attempt.agents[1].start()
    assert other["store_keys"]["access_key"] == spec["store_keys"]["access_key"]
    later = time.monotonic() + temporary_keys.LEARNER_SECONDS / 2
    clock = SimpleNamespace(monotonic=lambda: later)
    monkeypatch.setattr(temporary_keys, "time", clock)
    renewed = attempt.agents[0].post("store-keys").json()
    assert renewed["access_key"] != spec["store_keys"]["access_key"]
    assert renewed["seconds"] > temporary_keys.LEARNER_SECONDS * 0.9


def test_the_data_store_of_the_installation_stays_as_it_is(api: Api, ann: Person) -> None:
    body = {"endpoint": api.settings.datastore.endpoint, "user_name": "mine", "password": "mine"}
    for answer in (
        ann.http.put("/api/v1/datastores/default", json=body),
        ann.http.delete("/api/v1/datastores/default"),
    ):
        assert (answer.status_code, code_of(answer)) == (409, "conflict"), answer.text
        assert "the installation's own" in answer.text


def test_the_project_default_sees_no_bucket_of_another(api: Api, ann: Person, servers: Servers) -> None:
    """Its buckets have no prefix, as in installations from before projects shared the store."""
    root = api.person()
    with api.context.database.transaction() as session:
        share_datastore(session, api.settings, session.get_one(Project, root.project_id), "")
    for own in ("plain", "weft-of-its-own"):
        put(root, own, "k", "v")
        assert get(root, own, "k") == "v"
    hers = space_of(ann.project_id) + "digits"
    seen = set(containers(root))  # also the buckets of other tests
    assert {"plain", "weft-of-its-own"} <= seen
    assert not seen & {hers, api.settings.s3.bucket}
    for bucket in (hers, api.settings.s3.bucket):
        answer = root.http.get("/api/v1/datastores/default/objects", params={"container": bucket})
        assert answer.status_code == 400, answer.text
