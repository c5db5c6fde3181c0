"""Manifests as FfDL's examples have them, field by field and value by value, on the wire: each is accepted unchanged,
or refused with advice. The parameters' ids are the folders of FfDL's examples with these fields."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api.conftest import Api, Person, zipped
from tests.api.ffdl.wire import Wire

from weft_core.engine_settings import KubernetesSettings, LocalSettings
from weft_core.manifest import parse_manifest
from weft_core.objects import make_client
from weft_core.settings import S3Settings

TENSORFLOW, PYTORCH = "tensorflow:2.21.0", "pytorch:2.13.0"
HOROVOD_TORCH, HOROVOD_TF = "horovod:0.28.1-torch2.13", "horovod:0.28.1-tf2.21"

HEAD = "name: digits_tutorial\ndescription: A network for digits (GPU)\n"
RESULTS = "training_results:\n      container: digits-trained-model\n    "
STORES = """
# Object stores that allow the system to retrieve training data.
data_stores:
  - id: sl-internal-os
    type: {type}
    training_data:
      container: digits-training-data
    {results}connection:
      {again}auth_url: {url}
      user_name: {user}
      password: {password}
"""
TENSORBOARD = """
evaluation_metrics:
  type: tensorboard
  in: "$JOB_STATE_DIR/logs/tb"
  # (Eventual) Available event types: 'images', 'distributions', 'histograms'
  #  event_types: [scalars]
"""


class Stores:
    """The part of a manifest that names a store: one that is there, whatever FfDL calls its type."""

    def __init__(self, s3: S3Settings) -> None:
        self._s3 = s3

    def of(self, kind: str, results: str = RESULTS) -> str:
        again = "type: s3_datastore\n      " if kind == "s3_datastore" else ""
        key, secret = self._s3.access_key, self._s3.secret_key.get_secret_value()
        return STORES.format(
            id="sl-internal-os",
            type=kind,
            again=again,
            url=self._s3.endpoint,
            user=key,
            password=secret,
            results=results,
        )


@pytest.fixture(scope="module")
def stores(s3: S3Settings) -> Stores:
    client = make_client(s3.endpoint, None, s3.access_key, s3.secret_key.get_secret_value())
    for container in ("digits-training-data", "digits-trained-model"):
        client.create_bucket(Bucket=container)
    return Stores(s3)


@pytest.mark.parametrize(
    ("sizes", "kind", "framework", "image", "launcher", "shown"),
    [
        pytest.param(
            'version: "1.0"\ngpus: 0\ncpus: 0.5\nmemory: 1Gb\nlearners: 1\n',
            *("mount_cos", 'tensorflow\n  version: "1.5.0-py3"', TENSORFLOW, "none", (0.5, 0.0, 1.0, "GB", 1)),
            id="tf-model",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 1\ncpus: 2\nmemory: 2Gb\n',
            *("s3_datastore", 'tensorflow\n  version: "1.5.0-gpu-py3"', TENSORFLOW, "none", (2.0, 1.0, 2.0, "GB", 1)),
            id="tf-model-gpu",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 1\ncpus: 0.005\nmemory: 2000MiB\n',
            *("s3_datastore", 'tensorflow\n  version: "1.3.0-gpu"', TENSORFLOW, "none", (0.005, 1.0, 2000.0, "MiB", 1)),
            id="tf-summary-model",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 0\ncpus: 0.5\nmemory: 500MiB\n',
            *("s3_datastore", 'tensorflow\n  version: "1.3-py3"', TENSORFLOW, "none", (0.5, 0.0, 500.0, "MiB", 1)),
            id="tf-simple-model",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 0\nmemory: 1GiB\ncpus: 1\nlearners: 2\n',
            *("mount_cos", 'tensorflow\n  version: "1.5.0-py3"', TENSORFLOW, "tensorflow", (1.0, 0.0, 1.0, "GiB", 2)),
            id="tf-distributed",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 1\ncpus: 8\nmemory: 16GB\n',
            *("s3_datastore", "tensorflow\n  version: latest-gpu-py3", TENSORFLOW, "none", (8.0, 1.0, 16.0, "GB", 1)),
            id="fashion-mnist",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 0\ncpus: 1\nmemory: 1Gb\n',
            *("mount_cos", 'keras\n  version: "latest"', TENSORFLOW, "none", (1.0, 0.0, 1.0, "GB", 1)),
            id="keras",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 0\ncpus: 1\nmemory: 1000MiB\n',
            *("mount_cos", 'pytorch\n  version: "latest"', PYTORCH, "none", (1.0, 0.0, 1000.0, "MiB", 1)),
            id="pytorch-model",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 1\ncpus: 8\nlearners: 2\nmemory: 16Gb\n',
            *("mount_cos", 'pytorch\n  version: "v0.2"', PYTORCH, "torchrun", (8.0, 1.0, 16.0, "GB", 2)),
            id="pytorch-distributed",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 0\ncpus: 1\nmemory: 1Gb\nlearners: 2\n',
            *("mount_cos", 'horovod\n  version: "0.13.4-tf1.8.0-torch0.4.0-py3.5"', HOROVOD_TORCH, "horovod"),
            (1.0, 0.0, 1.0, "GB", 2),
            id="horovod",
        ),
        pytest.param(
            'version: "1.0"\ngpus: 2  # more than one on a node\nmemory: 16000MiB\nlearners: 2\n',
            *("mount_cos", 'tensorflow\n  version: "1.5-py3-horovod"', HOROVOD_TF, "horovod"),
            (1.0, 2.0, 16000.0, "MiB", 2),
            id="horovod-tfcnn",
        ),
    ],
)
def test_examples_are_taken_as_they_are(
    *,
    ann: Person,
    wire: Wire,
    stores: Stores,
    sizes: str,
    kind: str,
    framework: str,
    image: str,
    launcher: str,
    shown: tuple[float, float, float, str, int],
) -> None:
    command = "  command: >\n    python3 train.py --images ${DATA_DIR}/i.gz\n      --steps 200\n#    --rate 0.001\n"
    text = f"{HEAD}{sizes}{stores.of(kind)}\nframework:\n  name: {framework}\n{command}{TENSORBOARD}"
    answer = wire.train(text, zipped(train__py="1"))
    assert answer.status == 201, answer.body
    job_id = answer.json()["model_id"]
    training = wire.get(f"/v1/models/{job_id}").json()["training"]
    assert tuple(training[key] for key in ("cpus", "gpus", "memory", "memory_unit", "learners")) == shown
    assert training["command"] == "python3 train.py --images ${DATA_DIR}/i.gz --steps 200"
    job = ann.http.get(f"/api/v1/jobs/{job_id}").json()
    assert job["framework"]["launcher"] == launcher
    version = framework.split()[-1].strip('"')
    told = [event["message"] for event in ann.http.get(f"/api/v1/jobs/{job_id}/events").json()["events"]]
    assert f"framework version {version} runs on image {image}" in told


@pytest.mark.parametrize("name", ["1.3.0", "1.4.0", "1.5.0", "1.5.1", "1.6.0", "1.7.0", "1.8.0", "1.9.0", "latest"])
@pytest.mark.parametrize("suffix", ["", "-py3", "-gpu", "-gpu-py3"])
def test_documented_versions_of_tensorflow(api: Api, name: str, suffix: str) -> None:
    text = f"name: x\nframework: {{name: tensorflow, version: {name}{suffix}, command: x}}"
    manifest = parse_manifest(text, api.context.settings).manifest
    assert manifest.framework.image == TENSORFLOW
    assert manifest.notes == [f"framework version {name}{suffix} runs on image {TENSORFLOW}"]


def test_a_folder_of_the_machine(api: Api, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """tf-model's manifest-hostmount."""
    text = f"""{HEAD}gpus: 0\ncpus: 0.25\nmemory: 1Gb
data_stores:
  - id: hostmount
    type: mount_volume
    training_data:
      container: local-tf-training-data
      #  volumeMounts:
    training_results:
      container: local-trained-results
    connection:
      type: host_mount
      name: "host-mount"
      path: "/cosdata"
framework:
  name: tensorflow
  version: "1.5.0-py3"
  command: x
"""
    answer = wire.train(text, None)
    assert answer.status == 400
    assert "host_mounts" in answer.error(), "where an operator gives it"
    monkeypatch.setattr(api.context.settings, "engines", {"local": LocalSettings(host_mounts=[Path("/cosdata")])})
    answer = wire.train(text, None)
    assert answer.status == 201, answer.body
    stores = wire.get(answer.headers["Location"]).json()["data_stores"]
    mount = {"type": "host_mount", "name": "host-mount", "path": "/cosdata"}
    assert [store["connection"] for store in stores] == [
        {"bucket": "local-tf-training-data", **mount},
        {"bucket": "local-trained-results", **mount},
    ]


@pytest.fixture
def cluster(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installation's engine is a cluster, as every FfDL's was."""
    monkeypatch.setattr(api.context.settings, "engines", {"cluster": KubernetesSettings()})
    monkeypatch.setattr(api.context.settings, "default_engine", "cluster")


@pytest.mark.usefixtures("cluster")
def test_custom_images(wire: Wire, stores: Stores) -> None:
    """The c10d examples: learners with an image of their own, and a command that is none of bash's simple ones."""
    command = "./setup.sh; . env_file; python -m launch --nnodes=2 --node_rank=$node_rank train.py --batch_size=1024;"
    framework = f'framework:\n  name: custom\n  version: "someone/pytorch:0925mpi"\n  command:  {command}\n'
    sizes = 'version: "1.0"\ngpus: 1\ncpus: 16\nlearners: 2\nmemory: 16Gb\n'
    answer = wire.train(f"{HEAD}{sizes}{stores.of('mount_cos')}\n{framework}{TENSORBOARD}", zipped(a="1"))
    assert answer.status == 201, answer.body
    model = wire.get(answer.headers["Location"]).json()
    assert model["framework"] == {"name": "custom", "version": "someone/pytorch:0925mpi"}
    assert (model["training"]["command"], model["training"]["learners"]) == (command, 2)


@pytest.mark.parametrize(
    ("framework", "say"),
    [
        ('caffe\n  version: "cpu"', "framework.name: custom and framework.version: <image reference>"),
        ('caffe\n  version: "gpu"', "framework.name: custom and framework.version: <image reference>"),
        ("caffe2\n  version: c2v0.8.1.cuda8.cudnn7.ubuntu16.04", "use framework pytorch"),
        ('"h2o3"\n  version: "latest"', "framework.name: custom and framework.version: <image reference>"),
        ('pytorchmpi\n  version: "0925mpi"', "use framework pytorch"),
        ('tensorflow-gpu\n  version: "1.3.0-gpu"', "did you mean 'tensorflow'?"),
        ('custom\n  version: "someone/pytorch:0907"', "the absolute path of a virtual environment"),
        ('tensorflow\n  version: "1.2.0"', "accepted is one of: 2.21.0"),
    ],
)
def test_what_no_image_serves_is_told_what_to_do(wire: Wire, stores: Stores, framework: str, say: str) -> None:
    sizes = 'version: "1.0"\ngpus: 0\ncpus: 0.5\nmemory: 300MiB\n'
    text = f"{HEAD}{sizes}{stores.of('s3_datastore', results='')}framework:\n  name: {framework}\n  command: x\n"
    answer = wire.train(text, zipped(a="1"))
    assert answer.status == 400
    assert say in answer.error()
    assert wire.get("/v1/models").json() == {"models": []}


@pytest.mark.parametrize(
    ("written", "kind", "path"),
    [
        ("", "logger", None),
        *((f"evaluation_metrics: {{type: {name}}}", "logger", None) for name in ("logger", "none", "null", "nil")),
        ('evaluation_metrics: {type: tensorboard, in: "$JOB_STATE_DIR/logs/tb/test"}', "tensorboard", "tb/test"),
        ("evaluation_metrics: {type: tensorboard_extractor, eventTypes: [scalars]}", "tensorboard", None),
        *((f"evaluation_metrics: {{type: {name}}}", "emetrics_file", None) for name in ("emetrics_file", "file")),
        ("evaluation_metrics: {type: optivist, in: $LOG_DIR/evaluation-metrics.txt}", "emetrics_file", "metrics.txt"),
        (
            "evaluation_metrics:\n  type: regex_extractor\n  image_tag: latest\n  line_lookahead: 3\n"
            "  groups:\n    test:\n      regex: '%{GLOG_STAMP:at} Iteration %{INT:step}, loss = %{FLOAT:loss}'\n"
            "      meta: {time: $at}\n      scalars: {loss: {type: FLOAT, value: $loss}}\n"
            "      etimes: {iteration: {type: INT, value: $step}}\n",
            *("regex_extractor", None),
        ),
    ],
)
def test_every_kind_of_evaluation_metrics(api: Api, wire: Wire, written: str, kind: str, path: str | None) -> None:
    answer = wire.train(f"name: x\nframework: {{name: tensorflow, version: latest, command: x}}\n{written}", None)
    assert answer.status == 201, answer.body
    spec = api.attempt(answer.json()["model_id"]).agents[0].start()["evaluation_metrics"]
    assert spec["type"] == kind, "the type in the spec of its learner"
    assert (spec["path"] or "").endswith(path or "")
    assert bool(spec["groups"]) == (kind == "regex_extractor")
