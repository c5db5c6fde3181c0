"""FfDL's models: every row of its table, as bytes on the wire."""

from __future__ import annotations

import io
import os
import re
import socket
import stat
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete, update
from tests.api.conftest import Api, Person, zipped
from tests.api.ffdl.wire import Wire, read

from weft_api.code.service import put_code
from weft_api.context import Context
from weft_api.ffdl import submission
from weft_api.ffdl.translate import go_time
from weft_api.http.spool import Spooled
from weft_api.storage.checker import Checker, NamedContainer, Refusal
from weft_core.objects import make_client, results_prefix
from weft_core.settings import S3Settings
from weft_core.store.models import Job, Secret

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MANIFEST = """
name: tf_convolutional_network_tutorial
description: Convolutional network model using tensorflow
version: "1.0"
gpus: 0
cpus: 0.5
memory: 1Gb
learners: 1

data_stores:
  - id: sl-internal-os
    type: mount_cos
    training_data:
      container: tf-training-data
    training_results:
      container: tf-trained-model
    connection:
      auth_url: {url}
      user_name: {user}
      password: {password}

framework:
  name: tensorflow
  version: "1.5.0-py3"
  command: >
    python3 convolutional_network.py --trainImagesFile ${{DATA_DIR}}/train-images-idx3-ubyte.gz
      --learningRate 0.001
      --trainingIters 2000

evaluation_metrics:
  type: tensorboard
  in: "$JOB_STATE_DIR/logs/tb"
"""
SHORT = "name: x\nframework: {name: python, command: x}"
GO_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,5}[1-9]|\.[1-9])? \+0000 UTC")


@pytest.fixture(scope="module")
def manifest(s3: S3Settings) -> str:
    """FfDL's own example, with a store that is there."""
    client = make_client(s3.endpoint, None, s3.access_key, s3.secret_key.get_secret_value())
    for container in ("tf-training-data", "tf-trained-model"):
        client.create_bucket(Bucket=container)
    return MANIFEST.format(url=s3.endpoint, user=s3.access_key, password=s3.secret_key.get_secret_value())


def settle(api: Api, job_id: str, *states: str) -> None:
    for state in states or ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job_id, state, f"now {state}")


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def test_train_show_list(api: Api, ann: Person, wire: Wire, manifest: str, s3: S3Settings) -> None:
    answer = wire.train(manifest, zipped(train__py="print('hello')"))
    assert answer.status == 201, answer.body
    job_id = answer.json()["model_id"]
    assert answer.headers["Location"] == f"/v1/models/{job_id}", "relative: the client takes off what is before the id"
    assert answer.json() == {"model_id": job_id, "location": f"/v1/models/{job_id}"}

    answer = wire.get(f"/v1/models/{job_id}")
    assert answer.status == 200
    secret = s3.secret_key.get_secret_value().encode()
    assert secret not in answer.body, "credentials never come back"
    model = answer.json()
    status = model["training"].pop("training_status")
    assert GO_TIME.fullmatch(status["submitted"]), status
    assert status | {"submitted": ""} == {
        **{"status": "QUEUED", "status_description": "QUEUED: waiting for admission", "submitted": "", "completed": ""},
        **{"status_message": "waiting for admission", "error_code": "000"},
    }
    command = (
        "python3 convolutional_network.py --trainImagesFile ${DATA_DIR}/train-images-idx3-ubyte.gz "
        "--learningRate 0.001 --trainingIters 2000"
    )
    connection = {"auth_url": s3.endpoint}
    assert model == {
        "model_id": job_id,
        "location": f"/v1/models/{job_id}",
        "name": "tf_convolutional_network_tutorial",
        "description": "Convolutional network model using tensorflow",
        "framework": {"name": "tensorflow", "version": "1.5.0-py3"},
        "training": {
            **{"command": command, "cpus": 0.5, "gpus": 0.0, "memory": 1.0, "memory_unit": "GB", "learners": 1},
            **{"input_data": ["sl-internal-os-input"], "output_data": ["sl-internal-os-output"]},
        },
        "data_stores": [
            {
                "data_store_id": "sl-internal-os-input",
                "type": "mount_cos",
                "connection": {"bucket": "tf-training-data", **connection},
            },
            {
                "data_store_id": "sl-internal-os-output",
                "type": "mount_cos",
                "connection": {"bucket": "tf-trained-model", **connection},
            },
        ],
        "metrics": [],
    }
    # The same job in Weft's own API, with what became of FfDL's version.
    assert ann.http.get(f"/api/v1/jobs/{job_id}").json()["framework"]["version"] == "1.5.0-py3"
    told = [event["message"] for event in ann.http.get(f"/api/v1/jobs/{job_id}/events").json()["events"]]
    assert "framework version 1.5.0-py3 runs on image tensorflow:2.21.0" in told

    second = wire.train("name: second\nframework: {name: python, command: x}", None).json()["model_id"]
    answer = wire.get("/v1/models")
    assert [row["model_id"] for row in answer.json()["models"]] == [second, job_id], "newest first"
    settle(api, second)
    shown = wire.get(f"/v1/models/{second}").json()
    assert GO_TIME.fullmatch(shown["training"]["training_status"]["completed"])
    assert (shown["training"]["input_data"], shown["training"]["output_data"], shown["data_stores"]) == ([], [], [])
    assert (shown["training"]["learners"], shown["training"]["memory_unit"]) == (1, "GiB")


def test_times_in_gos_form() -> None:
    at = datetime(2026, 1, 31, 8, 15, 2, 500_000, UTC)
    assert go_time(at) == "2026-01-31 08:15:02.5 +0000 UTC"
    assert go_time(at.replace(microsecond=0)) == "2026-01-31 08:15:02 +0000 UTC"
    assert go_time(at.replace(microsecond=10).astimezone(timezone(timedelta(hours=5)))) == (
        "2026-01-31 08:15:02.00001 +0000 UTC"
    )
    assert go_time(None) == ""


def test_a_long_list_is_whole(api: Api, ann: Person, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wire.get("/v1/models").json() == {"models": []}
    monkeypatch.setattr("weft_api.ffdl.routes._PAGE", 2)
    jobs = [ann.submit()["id"] for _ in range(4)]
    assert [model["model_id"] for model in wire.get("/v1/models").json()["models"]] == jobs[::-1]
    jobs.append(ann.submit()["id"])
    assert [model["model_id"] for model in wire.get("/v1/models").json()["models"]] == jobs[::-1]
    # The list does not grow without end: it holds the newest ones, up to a limit.
    for most in (1, 2, 3, 4):
        monkeypatch.setattr("weft_api.ffdl.routes._MOST_LISTED", most)
        assert [model["model_id"] for model in wire.get("/v1/models").json()["models"]] == jobs[: -most - 1 : -1]


def absolute(root: str) -> bytes:
    """As the client zips a folder that is given with a slash at its end: by the whole path, sizes after the data."""
    buffer = io.BytesIO()

    class Stream(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: ReadableBuffer) -> int:
            return buffer.write(data)

    with zipfile.ZipFile(Stream(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{root}/lib/", b"")
        archive.writestr(f"{root}/lib/a.py", b"a = 1\n" * 1000)
        archive.writestr(f"{root}/train.py", b"import lib.a\n")
    return buffer.getvalue()


def folder(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return buffer.getvalue()


def test_definitions(wire: Wire) -> None:
    text = "name: x\nframework: {name: python, command: python train.py}"
    code = zipped(train__py="1", util__py="2")
    job_id = wire.train(text, code).json()["model_id"]
    answer = wire.get(f"/v1/models/{job_id}/definition")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
    assert answer.body == code
    assert wire.train(text, code, code_first=True).status == 201, "the parts come in either order"
    # A folder with a slash at its end: the common root is taken off.
    answer = wire.train(text, absolute("/home/ann/model"))
    assert answer.status == 201, answer.body
    answer = wire.get(f"{answer.headers['Location']}/definition")
    assert unzipped(answer.body) == {"lib/a.py": b"a = 1\n" * 1000, "train.py": b"import lib.a\n"}
    # The same of a relative path, of a folder in which there is but one; and a folder without a slash is as it is.
    for root, kept in (("model", "lib/"), ("../model", "lib/"), ("", "lib/")):
        answer = wire.train(text, absolute(f"{root}")) if root else wire.train(text, folder("lib/", "lib/a.py"))
        assert answer.status == 201, answer.body
        assert f"{kept}a.py" in unzipped(wire.get(f"{answer.headers['Location']}/definition").body)
    # A link in it: the client packs what it leads to.
    link = zipfile.ZipInfo("a.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as bundle:
        bundle.writestr(link, "a = 1")
    answer = wire.train(text, packed.getvalue())
    assert answer.status == 201, answer.body
    assert unzipped(wire.get(f"{answer.headers['Location']}/definition").body) == {"a.py": b"a = 1"}
    # Never out of it.
    answer = wire.train(text, absolute("/home/../../etc"))
    assert answer.status == 400
    assert "leads out of the folder" in answer.error()
    without = wire.train(SHORT, None).json()["model_id"]
    assert wire.get(f"/v1/models/{without}/definition").status == 404


def test_what_a_client_prints_for_a_bad_upload(wire: Wire) -> None:
    """`Error: <error>. <description>`, for a 400 only."""
    answer = wire.train("name: x\nlearners: two\nframework: {name: python, command: x}", zipped(a="1"))
    assert answer.status == 400
    assert answer.json()["error"] == "The manifest is not valid"
    assert "learners" in answer.error()
    # What made FfDL's server crash: no data stores, no framework.
    answer = wire.train("name: x", zipped(a="1"))
    assert answer.status == 400
    assert "framework" in answer.error()
    for kind, say in (("caffe", "framework.name: custom"), ("caffe2", "custom"), ("h2o3", "custom")):
        answer = wire.train(f"name: x\nframework: {{name: {kind}, version: '1.0', command: x}}", zipped(a="1"))
        assert answer.status == 400
        assert say in answer.error()
    answer = wire.train("name: x\nframework: {name: tensorflow, version: 0.9-py2, command: x}", zipped(a="1"))
    assert answer.status == 400
    assert "2.21.0" in answer.error(), "lists what there is"
    assert wire.train("name: x\nframework: {name: python, command: x}", b"no zip").status == 400
    assert wire.train("", None).status == 400
    answer = wire.call("POST", "/v1/models", b"{}")
    assert answer.status == 400
    assert "multipart" in answer.error()
    answer = wire.call("POST", "/v1/models", b"--x--\r\n", "multipart/form-data; boundary=x")
    assert answer.status == 400
    assert "manifest" in answer.error()
    assert wire.call("POST", "/v1/models", b"junk", "multipart/form-data").status == 400


def test_an_upload_does_not_wait_for_a_slow_store(api: Api, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    code = zipped(train__py="slow")
    go, done = threading.Event(), threading.Event()

    def slow(context: Context, project_id: str, upload: Spooled) -> bool:
        go.wait(60)
        put = put_code(context, project_id, upload)
        done.set()
        return put

    monkeypatch.setattr(submission, "put_code", slow)
    monkeypatch.setattr(submission, "_PATIENCE", 1.0)
    answer = wire.train(SHORT, code)
    assert answer.status == 400, "of no other status does the client show the text"
    assert "nothing was submitted" in answer.error()
    assert wire.get("/v1/models").json() == {"models": []}
    go.set()
    assert done.wait(300), "it goes on its way by itself"
    monkeypatch.setattr(submission, "_PATIENCE", 60.0)
    job_id = wire.train(SHORT, code).json()["model_id"]
    assert wire.get(f"/v1/models/{job_id}/definition").body == code


def test_the_time_for_an_answer_begins_with_the_first_byte(
    api: Api, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FfDL's client gives up 10 s after its call, however slow its network is, and can't tell why."""
    monkeypatch.setattr(submission, "_PATIENCE", 1.0)
    code = zipped(train__py="x" * 50_000)
    with wire.uploading(SHORT, code, piece=1000) as (connection, chunks):
        for _ in range(10):
            connection.sendall(next(chunks))
        answer = read(connection, "POST")  # with the greater part still to come
        assert answer.status == 400
        assert "more than 1 s" in answer.error()
    assert wire.get("/v1/models").json() == {"models": []}
    # For a client that waits longer, the server takes the time it needs.
    patient = Wire(api.url, wire.user, agent="curl/8.5.0")
    with patient.uploading(SHORT, code, piece=10_000) as (connection, chunks):
        for chunk in chunks:
            time.sleep(0.3)
            connection.sendall(chunk)
        assert read(connection, "POST").status == 201


def test_users_stores_are_asked_within_the_same_time(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "_PATIENCE", 2.0)
    asked: list[float | None] = []
    real = Checker.check

    def check(
        self: Checker, containers: Sequence[NamedContainer], until: float | None = None
    ) -> tuple[list[Refusal], list[str]]:
        asked.append(until and until - time.monotonic())
        return real(self, containers, until)

    monkeypatch.setattr(Checker, "check", check)
    with silent_server() as url:
        store = f"connection: {{auth_url: '{url}', user_name: a, password: b}}"
        text = f"{SHORT}\ndata_stores:\n  - id: s\n    training_data: {{container: c}}\n    {store}"
        answer = wire.train(text, None)
    assert answer.status == 201
    assert asked
    assert asked[0] is not None
    assert asked[0] <= 2.0


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
def test_a_large_upload_is_checked_while_it_is_stored(api: Api, ann: Person, wire: Wire) -> None:
    """60 MB in a folder given with a slash: nothing of it is compressed again, and it goes to the store at once."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/weights.bin", os.urandom(60_000_000))
        archive.writestr("model/train.py", "1")
    patient = Wire(api.url, wire.user, agent="curl/8.5.0")  # a busy machine must not fail this
    answer = patient.train(SHORT, buffer.getvalue(), piece=1 << 16)
    assert answer.status == 201, answer.body
    definition = wire.get(f"{answer.headers['Location']}/definition").body
    with zipfile.ZipFile(io.BytesIO(definition)) as archive:
        assert [(member.filename, member.file_size) for member in archive.infolist()] == [
            ("weights.bin", 60_000_000),
            ("train.py", 1),
        ]
    # A model that fails the check is not kept.
    damaged = bytearray(zipped(train__py="y" * 3000))
    damaged[60] ^= 0xFF
    before = {stored.key for stored in api.context.objects.objects(f"code/{ann.project_id}/")}
    answer = wire.train(SHORT, bytes(damaged))
    assert (answer.status, "damaged" in answer.error()) == (400, True)
    deadline = time.monotonic() + 60
    while {stored.key for stored in api.context.objects.objects(f"code/{ann.project_id}/")} != before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_root_folder_that_the_command_names(wire: Wire) -> None:
    """FfDL's own example: ``ffdl train manifest.yml keras-test/`` with the folder's name in the command."""
    for root in ("keras-test", "/home/ann/keras-test", "../keras-test"):
        for command, names in {
            "pip install keras && python3 keras-test/train.py": {"keras-test/train.py", "keras-test/lib/a.py"},
            "python3 train.py": {"train.py", "lib/a.py"},
            "cd keras-test; python3 train.py": {"keras-test/train.py", "keras-test/lib/a.py"},
        }.items():
            text = f"name: x\nframework: {{name: python, command: '{command}'}}"
            answer = wire.train(text, absolute(root))
            assert answer.status == 201, answer.body
            definition = wire.get(f"{answer.headers['Location']}/definition").body
            assert set(unzipped(definition)) == names, (root, command)


def test_a_command_that_names_a_file_comes_with_code(ann: Person, wire: Wire) -> None:
    text = "name: x\nframework: {name: python, command: 'pip install x && python train.py --lr 1'}"
    answer = wire.train(text, None)
    assert answer.status == 400
    assert "framework.command: runs train.py, a file of the code, and no code came" in answer.error()
    assert wire.train(text.replace("train.py", "/opt/train.py"), None).status == 201
    assert wire.train(text, zipped(train__py="1")).status == 201
    # Weft's own API leaves this to its callers: an image of theirs may contain the file.
    assert ann.http.post("/api/v1/jobs", json={"manifest": text}).status_code == 201


def test_halt_and_delete(api: Api, ann: Person, wire: Wire) -> None:
    job_id = ann.submit()["id"]
    answer = wire.call("PATCH", f"/v1/models/{job_id}", b'{"status":"halt"}')
    assert (answer.status, answer.json()) == (202, {"model_id": job_id})
    assert ann.http.get(f"/api/v1/jobs/{job_id}").json()["desired"] == "HALTED", "no mere edit of a status"
    assert wire.call("PATCH", f"/v1/models/{job_id}", b'{"status":"halt"}').status == 202
    for body in (b'{"status":"pause"}', b"{}", b"[", b'{"status":1}'):
        answer = wire.call("PATCH", f"/v1/models/{job_id}", body)
        assert answer.status == 400
        answer.error()
    ended = ann.submit()["id"]
    settle(api, ended)
    answer = wire.call("PATCH", f"/v1/models/{ended}", b'{"status":"halt"}')
    assert answer.status == 409, "its number is shown; of a 400 the client would say nothing here"
    assert "COMPLETED" in answer.error()
    answer = wire.call("DELETE", f"/v1/models/{job_id}")
    assert (answer.status, answer.json()) == (200, {"model_id": job_id})
    assert ann.http.get(f"/api/v1/jobs/{job_id}").json()["desired"] == "DELETED"
    for path in ("", "/definition", "/trained_model", "/logs", "/metrics"):
        answer = wire.get(f"/v1/models/{job_id}{path}")
        assert (answer.status, bool(answer.error())) == (404, True), path
    assert wire.call("DELETE", f"/v1/models/{job_id}").status == 404
    assert wire.call("PATCH", f"/v1/models/{job_id}", b'{"status":"halt"}').status == 404
    assert [model["model_id"] for model in wire.get("/v1/models").json()["models"]] == [ended]


def test_trained_models(api: Api, ann: Person, wire: Wire) -> None:
    job_id = ann.submit()["id"]
    prefix = results_prefix(ann.project_id, job_id)
    answer = wire.get(f"/v1/models/{job_id}/trained_model")
    assert (answer.status, "come at its end" in answer.error()) == (404, True)
    weights = bytes(range(256)) * 40_000
    api.context.objects.put(prefix + "model/weights.bin", weights)
    api.context.objects.put(prefix + "learner-1/training-log.txt", b"log")
    settle(api, job_id)
    answer = wire.get(f"/v1/models/{job_id}/trained_model")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
    assert answer.headers["Content-Length"] is None, "made while it is sent, so of any size"
    assert unzipped(answer.body) == {"model/weights.bin": weights, "learner-1/training-log.txt": b"log"}
    api.context.objects.delete([prefix + "model/weights.bin", prefix + "learner-1/training-log.txt"])
    answer = wire.get(f"/v1/models/{job_id}/trained_model")
    assert (answer.status, "nothing is at" in answer.error()) == (410, True)


def test_no_trained_model_of_a_job_that_never_ran(api: Api, wire: Wire, manifest: str) -> None:
    """The answer does not depend on the store: this job's credentials for it are gone."""
    answer = wire.train(manifest, zipped(convolutional_network__py="1"))
    job_id = answer.json()["model_id"]
    for state in ("PENDING", "FAILED"):
        settle(api, job_id, state)
    with api.context.database.transaction() as session:
        session.execute(delete(Secret).where(Secret.job_id == job_id))
    answer = wire.get(f"/v1/models/{job_id}/trained_model")
    assert (answer.status, "never ran" in answer.error()) == (404, True)


def test_why_a_job_failed(api: Api, ann: Person, wire: Wire) -> None:
    job_id = ann.submit()["id"]
    attempt = api.attempt(job_id)
    api.set_attempt(attempt, exit_code=3)
    api.end_attempt(attempt)
    settle(api, job_id, "PENDING", "PROCESSING")
    status = wire.get(f"/v1/models/{job_id}").json()["training"]["training_status"]
    assert status["status_description"] == "PROCESSING: now PROCESSING", "never a state without its reason"
    settle(api, job_id, "FAILED")
    with api.context.database.transaction() as session:
        session.execute(update(Job).where(Job.id == job_id).values(error_code="C201"))
    status = wire.get(f"/v1/models/{job_id}").json()["training"]["training_status"]
    assert (status["status"], status["error_code"], status["status_message"]) == ("FAILED", "C201", "3")


def test_several_data_stores(ann: Person, wire: Wire, s3: S3Settings, manifest: str) -> None:
    """FfDL refused more than one."""
    store = (
        "  - id: more\n    training_data: {container: tf-training-data, prefix: more}\n"
        f"    connection: {{auth_url: '{s3.endpoint}', user_name: {s3.access_key}, "
        f"password: {s3.secret_key.get_secret_value()}}}\n"
    )
    code = zipped(convolutional_network__py="1")
    answer = wire.train(manifest.replace("\nframework:", store + "\nframework:"), code)
    assert answer.status == 201, answer.body
    model = wire.get(answer.headers["Location"]).json()
    assert model["training"]["input_data"] == ["sl-internal-os-input", "more-input"]
    assert model["data_stores"][-1]["connection"]["prefix"] == "more"


def test_foreign_and_unknown_models(api: Api, ann: Person, bob: Person, wire: Wire) -> None:
    theirs = bob.submit()["id"]
    for job_id in (theirs, "training-gQYXhh2gg", "%00", "x" * 3000):
        path = f"/v1/models/{job_id}"
        for answer in (
            *(wire.get(path + rest) for rest in ("", "/definition", "/trained_model", "/logs", "/metrics")),
            *(wire.get(f"/v1/logs/{job_id}/{what}") for what in ("loglines", "emetrics")),
            wire.call("PATCH", path, b'{"status":"halt"}'),
            wire.call("DELETE", path),
        ):
            assert (answer.status, bool(answer.error())) == (404, True)
    assert wire.get("/v1/models").json() == {"models": []}
    assert bob.http.get(f"/api/v1/jobs/{theirs}").json()["desired"] == "RUNNING"


@pytest.mark.slow
def test_health_and_paths_that_are_none(api: Api, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Wire(api.url, "")
    answer = nobody.get("/health", basic=False)
    assert (answer.status, answer.body) == (200, b"OK")
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/v1", 404), ("PUT", "/v1/models", 405)):
        answer = wire.call(method, path)
        assert (answer.status, bool(answer.error())) == (status, True)

    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("weft_api.ffdl.routes.readiness", broken)
    answer = nobody.get("/health", basic=False)
    assert (answer.status, "it is in the server's log" in answer.error()) == (500, True)
    down = type("Found", (), {"status": "unavailable", "checks": {"postgres": "does not answer"}})
    monkeypatch.setattr("weft_api.ffdl.routes.readiness", lambda _: down)
    answer = nobody.get("/health", basic=False)
    assert (answer.status, answer.error()) == (503, "postgres: does not answer")


@pytest.mark.parametrize(
    ("framework", "launcher"),
    [
        ("{name: horovod, version: 0.13.10-tf1.9.0-torch0.4.0-py3.5, command: python train.py}", "horovod"),
        ("{name: tensorflow, version: 1.5.0-gpu-py3, command: python train.py}", "tensorflow"),
        ("{name: pytorch, version: latest, command: python train.py}", "torchrun"),
    ],
)
def test_learners_are_a_gang(ann: Person, wire: Wire, framework: str, launcher: str) -> None:
    """In FfDL they were as many independent runs."""
    answer = wire.train(f"name: x\nlearners: 2\ngpus: 0\nframework: {framework}", zipped(train__py="1"))
    job_id = answer.json()["model_id"]
    assert wire.get(f"/v1/models/{job_id}").json()["training"]["learners"] == 2
    assert ann.http.get(f"/api/v1/jobs/{job_id}").json()["framework"]["launcher"] == launcher
