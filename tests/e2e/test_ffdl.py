"""A job of FfDL's, from its client's bytes to what its program finds and leaves."""

from __future__ import annotations

import io
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from tests.api.ffdl.wire import Wire
from tests.e2e.stack import Stack, eventually

from weft_core.objects import make_client

MANIFEST = """
name: tf_convolutional_network_tutorial
description: Convolutional network model using tensorflow
version: "1.0"
gpus: 0
cpus: 0.5
memory: 1000MiB
learners: 2

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
    bash program.sh ${{DATA_DIR}}/digits.txt

evaluation_metrics:
  type: regex_extractor
  groups:
    test:
      regex: 'Iteration %{{INT:step}}, accuracy = %{{FLOAT:accuracy}}'
      scalars: {{accuracy: {{type: FLOAT, value: $accuracy}}}}
      etimes: {{iteration: {{type: INT, value: $step}}}}
"""
PROGRAM = """
set -eu
test "$PWD" = "$MODEL_DIR"
test "$(basename "$RESULT_DIR")" = "$TRAINING_ID"
test "$(dirname "$RESULT_DIR")" = "$RESULT_BUCKET_DIR"
test -d "$CHECKPOINT_DIR" -a -d "$LOG_DIR"
echo "learner $LEARNER_ID of $NUM_LEARNERS with $(cat "$1")"
python -c 'import json, os; t = json.loads(os.environ["TF_CONFIG"]); print(t["task"], len(t["cluster"]["worker"]))'
touch "$JOB_STATE_DIR/here-$LEARNER_ID"
until [ -e "$JOB_STATE_DIR/here-1" ] && [ -e "$JOB_STATE_DIR/here-2" ]; do sleep 0.05; done
echo "Iteration $LEARNER_ID, accuracy = 0.75"
echo "weights of $LEARNER_ID" > "$RESULT_DIR/model-$LEARNER_ID.txt"
"""


def test_a_job_of_ffdls(stack: Stack, tmp_path: Path) -> None:
    settings = tomllib.loads((stack.home / "weft.toml").read_text())["s3"]
    (store,) = stack.client.datastores.list()
    s3 = make_client(store.endpoint, None, settings["access_key"], settings["secret_key"])
    for container in ("tf-training-data", "tf-trained-model"):
        stack.client.data.create(f"default:{container}")
    s3.put_object(Bucket="tf-training-data", Key="digits.txt", Body=b"seven digits")
    text = MANIFEST.format(url=store.endpoint, user=settings["access_key"], password=settings["secret_key"])
    profile = tomllib.loads(stack.profile.read_text())["profiles"]["default"]
    wire = Wire(profile["url"], profile["token"])

    answer = wire.train(text, _zip({"program.sh": PROGRAM.encode()}))
    assert answer.status == 201, answer.body
    job_id = answer.json()["model_id"]
    assert answer.headers["Location"] == f"/v1/models/{job_id}"
    with wire.websocket(f"/v1/models/{job_id}/logs?follow=true&since_time=") as followed:
        frames = list(followed)  # it waits for the start, and ends with the job
    assert followed.code == 1000
    log = "".join(frames).splitlines()
    for learner in (1, 2):
        assert f"learner {learner} of 2 with seven digits" in log
        assert f"{{'type': 'worker', 'index': {learner - 1}}} 2" in log

    model = _model(wire, job_id)
    assert model["training"]["training_status"]["status"] == "COMPLETED"
    assert (model["training"]["memory"], model["training"]["memory_unit"]) == (1000, "MiB")
    assert settings["secret_key"] not in str(model)
    lines = wire.get(f"/v1/logs/{job_id}/loglines?searchType=TERM&since_time=&pagesize=100&pos=0").json()["models"]
    assert [line["meta"]["rindex"] for line in lines] == list(range(1, len(log) + 1))
    assert sorted(line["line"].rstrip("\n") for line in lines) == sorted(log)
    metrics = wire.get(f"/v1/logs/{job_id}/emetrics?searchType=TERM&since_time=&pagesize=10&pos=0").json()["models"]
    assert sorted(metric["etimes"]["iteration"]["value"] for metric in metrics) == ["1", "2"]
    assert {metric["values"]["accuracy"]["value"] for metric in metrics} == {"0.75"}
    events = [event.message for event in stack.client.jobs.get(job_id).events()]
    assert any("1.5.0-py3" in message and "tensorflow:2" in message for message in events), events

    trained = _unzipped(wire.get(f"/v1/models/{job_id}/trained_model").body)
    assert trained["model-2.txt"] == b"weights of 2\n"
    assert b"learner 2 of 2" in trained["learner-2/training-log.txt"]
    assert _unzipped(trained["_submitted_code/model.zip"]) == {"program.sh": PROGRAM.encode()}
    assert _unzipped(wire.get(f"/v1/models/{job_id}/definition").body) == {"program.sh": PROGRAM.encode()}
    stored = s3.get_object(Bucket="tf-trained-model", Key=f"{job_id}/model-1.txt")
    assert stored["Body"].read() == b"weights of 1\n"


def test_a_program_of_ffdls_that_fails(stack: Stack) -> None:
    text = "name: fails\nframework: {name: tensorflow, version: 1.5.0-py3, command: exit 3}\nmemory: 512MB\ncpus: 0.5\n"
    wire_of = tomllib.loads(stack.profile.read_text())["profiles"]["default"]
    wire = Wire(wire_of["url"], wire_of["token"])
    job_id = wire.train(text, None).json()["model_id"]
    ended = eventually(lambda: _ended(wire, job_id), "it has failed")
    assert (ended["status"], ended["error_code"], ended["status_message"]) == ("FAILED", "C201", "3")
    assert wire.call("DELETE", f"/v1/models/{job_id}").json() == {"model_id": job_id}


def _model(wire: Wire, job_id: str) -> dict[str, Any]:
    model: dict[str, Any] = wire.get(f"/v1/models/{job_id}").json()
    return model


def _ended(wire: Wire, job_id: str) -> dict[str, Any] | None:
    status: dict[str, Any] = _model(wire, job_id)["training"]["training_status"]
    return status if status["completed"] else None


def _zip(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def _unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
