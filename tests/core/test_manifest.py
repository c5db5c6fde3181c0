"""The canonical form of good manifests: Weft's own, FfDL's, and everything that the installation's settings fill in."""

from __future__ import annotations

import json
import time

import pytest
import yaml
from jsonschema_rs import validator_for

from weft_core.engine_settings import KubernetesSettings, LocalSettings, RaySettings
from weft_core.launch import Resources
from weft_core.manifest import (
    Credentials,
    Manifest,
    ManifestError,
    ParsedManifest,
    Place,
    Repository,
    manifest_schema,
    manifest_text,
    parse_manifest,
)
from weft_core.manifest.fields import MANIFEST
from weft_core.settings import IdentitySettings, ImageSettings, ProfileSettings, Settings

SETTINGS = Settings(
    default_engine="here",
    engines={
        "here": LocalSettings(),
        "cluster": KubernetesSettings(),
        "ray-1": RaySettings(),
        "ray-2": RaySettings(),
    },
    profiles={"v100x2": ProfileSettings(cpus=8, gpus=2, gpu_type="v100", memory=64 << 30, storage=1 << 40)},
    identity=IdentitySettings(issuer="https://weft.example.com"),
    images=ImageSettings(aliases={"tensorflow:1.0": "tensorflow:2.21", "pytorch:lost": "pytorch:0.1"}),
)

PLAIN = "name: job\nframework: {name: python, command: 'true'}\n"

FULL = """
name: mnist-horovod
description: |
  Two
  lines
version: 1.0
labels: {team: vision, cost: 010}
engine: kubernetes
priority: "70"
learners: 2.0
elastic: {min: 1, max: 4}
cpus: 1.5
gpus: 1
gpu_type: a100
memory: 1Gb
storage: 50 GiB
framework:
  name: Horovod
  version: 0.28.1-torch2.13
  launcher: auto
  packages: [transformers==4.57.*, "torch>=2.10", 'einops; python_version > "3"']
  requirements: more/requirements.txt
  wheels: wheels/*.whl
  index: {url: https://packages.example.com/simple, secret: index-password}
  command: >
    python train.py
    --epochs 2
data_stores:
  - id: cos
    type: s3
    connection: {auth_url: "https://s3.example.com/", user_name: key, password: hunter2, region: eu-de}
    training_data: {container: tf_training_data, prefix: /mnist//small/, mode: stream}
    training_results: {container: tf_trained_model}
    wheels: {container: builds, prefix: /wheels/}
  - id: kept
    datastore: team-data
    training_data: {container: more, include: ["*.tar", 'train/**'], exclude: "*.tmp", shard: none}
    pretrained_model: {container: models, prefix: resnet}
checkpoint: {every: 1h30m, keep: 5}
after: [job-one, {job: job-two, on: ended}]
retries: 2
max_runtime: 2d
env: {KEY: yes, OCTAL: 010, NOTHING: , TILDE: ~, HOROVOD_CYCLE_TIME: 20}
secrets: {WANDB_API_KEY: wandb}
identity: {audience: sts.amazonaws.com, subject: project}
results: [model.pt, "out/**"]
keep_leftovers: no
evaluation_metrics: {type: tensorboard, in: $JOB_STATE_DIR/logs/tb}
notify:
  - {url: https://example.com/hook, on: failed, secret: hook-key}
  - {url: https://example.com/other, format: slack}
  - {format: slack, secret: slack-url, on: []}
  - {email: ada@example.com, on: [HALTED, failed]}
rules:
  - {when: metric val/loss is NaN, then: halt}
  - {when: "log /CUDA (error|fault)/", then: [notify, halt, notify]}
  - {when: no step for 1h30m, then: notify}
parameters: {lr: 0.1, batch: 32, model: small}
"""


def parse(text: str, **overrides: str) -> Manifest:
    return parse_manifest(text, SETTINGS, overrides=overrides).manifest


def test_a_connection_without_credentials_has_those_that_are_known() -> None:
    text = (
        "{name: x, framework: {name: pytorch, command: c}, data_stores: [{id: a, %s, training_data: {container: b}}]}"
    )
    user = Credentials("user", "word", ca="CERTIFICATE")
    known = {("a", "https://s3"): user}
    bare, own = (
        "connection: {auth_url: 'https://s3'}",
        "connection: {auth_url: 'https://s3', user_name: u, password: p}",
    )
    assert parse_manifest(text % bare, SETTINGS, credentials=known).credentials == {"a": user}
    assert parse_manifest(text % own, SETTINGS, credentials=known).credentials == {"a": Credentials("u", "p")}
    # Neither for another data store, nor to another endpoint.
    for other in (("b", "https://s3"), ("a", "https://elsewhere")):
        with pytest.raises(ManifestError, match="user_name"):
            parse_manifest(text % bare, SETTINGS, credentials={other: user})


def test_schedule_and_on_are_written_as_they_were_read() -> None:
    parsed = parse_manifest(PLAIN + "schedule: 0 3 * * MON-FRI\non: digits@production\n", SETTINGS).manifest
    assert parsed.model_dump(mode="json", include={"schedule", "on"}) == {
        "schedule": {"cron": "0 3 * * MON-FRI", "timezone": "UTC", "overlap": "skip"},
        "on": {"name": "digits", "version": "production"},
    }
    assert parse_manifest(manifest_text(parsed), SETTINGS).manifest == parsed


def test_every_field() -> None:
    parsed = parse_manifest(FULL, SETTINGS)
    assert parsed.manifest.model_dump(mode="json", exclude_none=True) == {
        "name": "mnist-horovod",
        "description": "Two\nlines",
        "version": "1.0",
        "labels": {"team": "vision", "cost": "010"},
        "engine": "cluster",
        "priority": 70,
        "learners": 2,
        "elastic": {"min": 1, "max": 4},
        "resources": {
            "cpus": 1.5,
            "gpus": 1,
            "gpu_type": "a100",
            "memory": 10**9,
            "storage": 50 << 30,
            "extra": {},
        },
        "framework": {
            "name": "horovod",
            "version": "0.28.1-torch2.13",
            "launcher": "horovod",
            "command": "python train.py --epochs 2",
            "image": "horovod:0.28.1-torch2.13",
            "packages": ["transformers==4.57.*", "torch>=2.10", 'einops; python_version > "3"'],
            "requirements": "more/requirements.txt",
            "wheels": ["wheels/*.whl"],
            "index": {"url": "https://packages.example.com/simple", "secret": "index-password"},
        },
        "data_stores": [
            {
                "id": "cos",
                "type": "s3",
                "connection": {"auth_url": "https://s3.example.com", "region": "eu-de"},
                "training_data": {
                    "container": "tf_training_data",
                    "prefix": "mnist/small",
                    "mode": "stream",
                    "include": [],
                    "exclude": [],
                    "shard": "none",
                },
                "training_results": {"container": "tf_trained_model", "prefix": ""},
                "wheels": {"container": "builds", "prefix": "wheels"},
            },
            {
                "id": "kept",
                "type": "s3",
                "datastore": "team-data",
                "training_data": {
                    "container": "more",
                    "prefix": "",
                    "mode": "download",
                    "include": ["*.tar", "train/**"],
                    "exclude": ["*.tmp"],
                    "shard": "none",
                },
                "pretrained_model": {"container": "models", "prefix": "resnet"},
            },
        ],
        "checkpoint": {"every_seconds": 5400.0, "keep": 5},
        "after": [{"job": "job-one", "on": "completed"}, {"job": "job-two", "on": "ended"}],
        "retries": 2,
        "max_runtime_seconds": 172800.0,
        "env": {"KEY": "yes", "OCTAL": "010", "NOTHING": "", "TILDE": "~", "HOROVOD_CYCLE_TIME": "20"},
        "secrets": {"WANDB_API_KEY": "wandb"},
        "identity": {"audience": "sts.amazonaws.com", "subject": "project"},
        "results": ["model.pt", "out/**"],
        "keep_leftovers": False,
        "parameters": {"lr": 0.1, "batch": 32, "model": "small"},
        "evaluation_metrics": {
            "type": "tensorboard",
            "path": "$JOB_STATE_DIR/logs/tb",
            "line_lookahead": 4,
            "event_types": [],
            "groups": {},
        },
        "notify": [
            {"url": "https://example.com/hook", "on": ["FAILED"], "format": "json", "secret": "hook-key"},
            {"url": "https://example.com/other", "on": ["COMPLETED", "FAILED"], "format": "slack"},
            {"on": [], "format": "slack", "secret": "slack-url"},
            {"email": "ada@example.com", "on": ["HALTED", "FAILED"], "format": "json"},
        ],
        "rules": [
            {"when": "metric val/loss is NaN", "then": ["halt"]},
            {"when": "log /CUDA (error|fault)/", "then": ["notify", "halt"]},
            {"when": "no step for 1h30m", "then": ["notify"]},
        ],
        "notes": [],
    }
    assert parsed.manifest.results_place == (parsed.manifest.data_stores[0], Place(container="tf_trained_model"))
    assert parsed.manifest.registers is None
    assert [store.id for store, _ in parsed.manifest.inputs] == ["cos", "kept"]
    assert parsed.manifest.pretrained == (
        parsed.manifest.data_stores[1],
        parsed.manifest.data_stores[1].pretrained_model,
    )


def test_a_repository() -> None:
    text = PLAIN + "repo: {url: https://git.example.com/a/b.git, ref: main, secret: git, path: train/x/}\n"
    manifest = parse(text)
    assert manifest.repo == Repository(url="https://git.example.com/a/b.git", ref="main", secret="git", path="train/x")
    assert parse(manifest_text(manifest)) == manifest
    commit = "0123456789abcdef0123456789abcdef01234567"
    pinned = manifest.model_copy(update={"repo": manifest.repo.model_copy(update={"commit": commit})})
    again = parse(manifest_text(pinned)).repo
    assert again is not None
    assert (again.ref, again.commit) == (commit, commit), "a rerun has the same commit"
    assert parse(PLAIN + f"repo: {{url: https://git.example.com/b, ref: {commit.upper()}}}\n").repo == Repository(
        url="https://git.example.com/b", ref=commit, commit=commit
    )


def test_what_is_kept_reads_back_as_the_same() -> None:
    manifest = parse(FULL)
    assert Manifest.model_validate(manifest.model_dump(mode="json", exclude_none=True)) == manifest


def test_the_written_text_of_a_manifest_means_the_same() -> None:
    parsed = parse_manifest(FULL, SETTINGS)
    text = manifest_text(parsed.manifest)
    assert "hunter2" not in text
    known = {("cos", "https://s3.example.com"): parsed.credentials["cos"]}
    again = parse_manifest(text, SETTINGS, credentials=known)
    assert again.manifest == parsed.manifest
    assert again.credentials == parsed.credentials


@pytest.mark.parametrize("written", ["1MiB", "512 MiB", "3GB", "1536MiB", "2TB", "123456789"])
def test_sizes_are_written_exactly(written: str) -> None:
    manifest = parse(PLAIN + f"memory: {written}\n")
    assert parse(manifest_text(manifest)).resources == manifest.resources


def test_credentials_are_lifted_out() -> None:
    parsed = parse_manifest(FULL.replace("region:", "session_token: t0ken, region:"), SETTINGS)
    kept = parsed.credentials["cos"]
    assert (kept.user_name, kept.password, kept.session_token) == ("key", "hunter2", "t0ken")
    assert list(parsed.credentials) == ["cos"]
    shown = parsed.manifest.model_dump_json() + repr(parsed)
    assert "hunter2" not in shown
    assert "t0ken" not in shown


def test_defaults() -> None:
    manifest = parse(PLAIN)
    assert manifest.resources == Resources(cpus=1, gpus=0, memory=2 << 30)
    assert (manifest.engine, manifest.priority, manifest.learners, manifest.retries) == ("here", 50, 1, 0)
    assert (manifest.checkpoint.every_seconds, manifest.checkpoint.keep) == (300, 3)
    assert (manifest.max_runtime_seconds, manifest.elastic, manifest.results_place, manifest.pretrained) == (None,) * 4
    assert manifest.evaluation_metrics.type == "logger"


def test_profile_gives_the_sizes_and_storage_may_be_set_beside_it() -> None:
    assert parse(PLAIN + "profile: v100x2").resources == Resources(8, 2, 64 << 30, 1 << 40, "v100")
    assert parse(PLAIN + "profile: v100x2\nstorage: 1Tb").resources.storage == 10**12


def test_json_and_null_and_a_byte_order_mark() -> None:
    document = {"name": "job", "labels": None, "framework": {"name": "python", "command": 'echo "a/b"\n'}}
    assert parse_manifest(b"\xef\xbb\xbf" + json.dumps(document).encode(), SETTINGS).manifest.name == "job"


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512", 512 * 10**6),
        ("300MiB", 300 << 20),
        ("1000mb", 10**9),
        ("1Gb", 10**9),
        ("1 gib", 1 << 30),
        ("1.5GB", 1_500_000_000),
        ("2TIB", 2 << 40),
        ("'1tb'", 10**12),
    ],
)
def test_sizes(written: str, size: int) -> None:
    assert parse(PLAIN + f"memory: {written}").resources.memory == size


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("24h", 86400),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1H 30M", 5400),
        ("0.5h", 1800),
        ("90", 90),
    ],
)
def test_durations(written: str, seconds: float) -> None:
    assert parse(PLAIN + f"max_runtime: {written}").max_runtime_seconds == seconds


@pytest.mark.parametrize(
    ("framework", "launcher", "image"),
    [
        ("{name: pytorch, command: x}", "none", "pytorch:2.13.0"),
        ("{name: pytorch, version: 2.13, command: x}", "none", "pytorch:2.13.0"),
        ("{name: pytorch, command: x, launcher: torchrun}", "torchrun", "pytorch:2.13.0"),
        ("{name: pytorch, command: torchrun train.py}", "torchrun", "pytorch:2.13.0"),
        ("{name: pytorch, command: python -m torch.distributed.run train.py}", "torchrun", "pytorch:2.13.0"),
        ("{name: tensorflow, command: x}", "none", "tensorflow:2.21.0"),
        ("{name: tensorflow, command: x, launcher: tensorflow}", "tensorflow", "tensorflow:2.21.0"),
        ("{name: keras, command: x}", "none", "tensorflow:2.21.0"),
        ("{name: horovod, command: x}", "horovod", "horovod:0.28.1-torch2.13"),
        ("{name: horovod, version: 0.28.1-tf2.21, command: x}", "horovod", "horovod:0.28.1-tf2.21"),
        ("{name: horovod, version: 0.28.1-tf2.21, command: x, launcher: none}", "none", "horovod:0.28.1-tf2.21"),
        ("{name: python, version: '3.11', command: x}", "none", "python:3.11"),
        ("{name: custom, version: /opt/venv, command: x}", "none", "/opt/venv"),
        ("{name: custom, version: /opt/venv, command: x, launcher: torchrun}", "torchrun", "/opt/venv"),
    ],
)
def test_framework_of_one_learner(framework: str, launcher: str, image: str) -> None:
    found = parse(f"name: x\nframework: {framework}").framework
    assert (found.launcher, found.image) == (launcher, image)


@pytest.mark.parametrize("sizes", ["learners: 2", "gpus: 2", "elastic: {min: 1, max: 2}"])
def test_pytorch_with_several_processes_starts_them_as_torchrun_does(sizes: str) -> None:
    assert parse(f"name: x\n{sizes}\nframework: {{name: pytorch, command: x}}").framework.launcher == "torchrun"
    assert parse("name: x\ngpus: 1\nframework: {name: pytorch, command: x}").framework.launcher == "none"


def test_tensorflow_with_several_learners_is_a_cluster() -> None:
    assert parse("name: x\nlearners: 2\nframework: {name: tensorflow, command: x}").framework.launcher == "tensorflow"


def test_a_custom_image_on_an_engine_that_runs_containers() -> None:
    image = "registry.example.com:5000/team/image:1"
    text = f"name: x\nengine: cluster\nframework: {{name: custom, version: '{image}', command: x}}"
    assert parse(text).framework.image == image


def test_mapped_versions_leave_a_note() -> None:
    ffdl = parse("name: x\nframework: {name: tensorflow, version: 1.5.0-py3, command: x}")
    assert (ffdl.framework.version, ffdl.framework.image) == ("1.5.0-py3", "tensorflow:2.21.0")
    assert ffdl.notes == ["framework version 1.5.0-py3 runs on image tensorflow:2.21.0"]
    own = parse("name: x\nframework: {name: tensorflow, version: 1.0, command: x}")
    assert own.framework.image == "tensorflow:2.21.0"
    assert parse("name: x\nframework: {name: tensorflow, version: 2.21, command: x}").notes == []


@pytest.mark.parametrize(
    ("asked", "engine"), [("here", "here"), ("local", "here"), ("kubernetes", "cluster"), ("ray-2", "ray-2")]
)
def test_engine_by_name_or_by_a_type_that_one_has(asked: str, engine: str) -> None:
    assert parse(PLAIN + f"engine: {asked}").engine == engine


FFDL = """
name: digits_network
description: A network as FfDL's users describe one
version: "1.0"
gpus: 0
cpus: 0.5
memory: 300MiB
learners: 1

# Where the data is.
data_stores:
  - id: sl-internal-os
    type: {type}
    training_data:
      container: tf_training_data
    training_results:
      container: tf_trained_model
    connection:
      type: {type}
      auth_url: http://s3.default.svc.cluster.local
      user_name: test
      password: test
      domain_name: "1234567"
      project_id: abc

framework:
  name: tensorflow
  version: "1.5.0-gpu-py3"
  image_tag: latest
  command: >
    python3 train.py --images ${{DATA_DIR}}/images.gz
      --steps 2000

evaluation_metrics:
  type: tensorboard
  in: "$JOB_STATE_DIR/logs/tb"
"""


@pytest.mark.parametrize("kind", ["mount_cos", "s3_datastore"])
def test_ffdl_manifest(kind: str) -> None:
    parsed = parse_manifest(FFDL.format(type=kind), SETTINGS)
    store = parsed.manifest.data_stores[0]
    assert store.type == kind
    assert store.connection is not None
    assert (store.connection.domain_name, store.connection.project_id) == ("1234567", "abc")
    assert parsed.credentials["sl-internal-os"].password == "test"
    assert parsed.manifest.framework.command == "python3 train.py --images ${DATA_DIR}/images.gz --steps 2000"
    assert "framework.image_tag is FfDL's own and has no effect" in parsed.manifest.notes


def test_lines_of_a_command() -> None:
    """Only options on lines of their own, in a folded block, belong to the line before."""
    lines = ("cat <<X", "  -v", "X", "if true; then", "  a", "  b", "fi")
    block = "name: x\nframework:\n  name: python\n  command: {}\n    " + "\n    ".join(lines)
    assert parse(block.format("|")).framework.command == "cat <<X\n  -v\nX\nif true; then\n  a\n  b\nfi"
    assert parse(block.format(">")).framework.command == "cat <<X -v\nX if true; then\n  a\n  b\nfi"


def test_ffdl_mount_volume_and_no_results() -> None:
    text = """
name: job
framework: {name: tensorflow, version: latest, command: x}
data_stores:
  - id: hostmount
    type: mount_volume
    training_data: {container: some/folder}
    connection: {type: host_mount, name: host-mount, path: /cosdata}
"""
    manifest = parse(text)
    assert manifest.results_place is None
    assert manifest.data_stores[0].mount is not None
    assert (manifest.data_stores[0].mount.name, manifest.data_stores[0].mount.path) == ("host-mount", "/cosdata")


def test_a_gpu_type_without_gpus_means_nothing() -> None:
    assert parse(PLAIN + "gpu_type: nvidia-TeslaK80").resources.gpu_type is None


@pytest.mark.parametrize("where", ["pretrained_model: {model: resnet@3}", "model: resnet@3"])
def test_a_model_of_the_registry_needs_no_connection(where: str) -> None:
    manifest = parse(PLAIN + f"data_stores: [{{{where}}}]")
    assert manifest.data_stores[0].id == "store-1"
    assert manifest.data_stores[0].model is not None
    assert (manifest.data_stores[0].model.name, manifest.data_stores[0].model.version) == ("resnet", "3")
    assert manifest.pretrained is not None


def test_results_that_become_a_models_version() -> None:
    kept = parse(PLAIN + "data_stores: [{datastore: s, training_results: {container: c, prefix: /p/, model: resnet}}]")
    assert kept.registers == "resnet"
    assert kept.results_place == (kept.data_stores[0], Place(container="c", prefix="p"))
    own = parse(PLAIN + "data_stores: [{training_results: {model: resnet}, model: resnet@production}]")
    assert (own.registers, own.results_place) == ("resnet", None)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("logger", "logger"),
        ("none", "logger"),
        ("null", "logger"),
        ("~", "logger"),
        ("nil", "logger"),
        ("tensorboard_extractor", "tensorboard"),
        ("file", "emetrics_file"),
        ("optivist", "emetrics_file"),
        ("emetrics_file", "emetrics_file"),
    ],
)
def test_kinds_of_metrics(written: str, kind: str) -> None:
    assert parse(PLAIN + f"evaluation_metrics: {{type: {written}}}").evaluation_metrics.type == kind


def test_regex_extractor() -> None:
    text = r"""
evaluation_metrics:
  type: regex_extractor
  line_lookahead: "3"
  eventTypes: [scalars]
  groups:
    test:
      regex: 'I%{GLOG_STAMP:stamp} Iteration %{INT:iteration}, loss = %{FLOAT:loss} (?P<unit>\w+)'
      meta: {time: $stamp}
      scalars: {loss: {type: float, value: $loss}, kind: {type: STRING, value: constant}}
      etimes: {iteration: {type: INT, value: $iteration}}
"""
    metrics = parse(PLAIN + text).evaluation_metrics
    assert (metrics.line_lookahead, metrics.event_types) == (3, ["scalars"])
    assert metrics.groups["test"].scalars["loss"].type == "FLOAT"
    assert metrics.groups["test"].meta is not None
    assert metrics.groups["test"].meta.time == "$stamp"


def test_anchors_and_merge_keys() -> None:
    text = """
name: &name job
labels: {name: *name}
framework: {name: python, command: x}
data_stores:
  - &store
    id: one
    connection: {auth_url: http://s3:80, user_name: a, password: b}
    training_data: {container: first}
  - {<<: *store, id: two, training_data: {container: second}}
"""
    parsed = parse_manifest(text, SETTINGS)
    assert parsed.manifest.labels == {"name": "job"}
    assert [place.container for _, place in parsed.manifest.inputs] == ["first", "second"]
    assert set(parsed.credentials) == {"one", "two"}


def test_set_wins_over_what_is_written() -> None:
    manifest = parse(
        FULL,
        **{
            "learners": "3",
            "framework.command": "python other.py --x=1",
            "data_stores[0].training_data.container": "others",
            "data_stores[1].id": "second",
            "labels.new": "yes",
            "env.KEY": "",
            "gpu_type": "",
            "storage": "",
        },
    )
    assert (manifest.learners, manifest.framework.command) == (3, "python other.py --x=1")
    assert [place.container for _, place in manifest.inputs] == ["others", "more"]
    assert manifest.data_stores[1].id == "second"
    assert (manifest.labels["new"], manifest.env["KEY"]) == ("yes", "")
    # An empty value means the default.
    assert (manifest.resources.gpu_type, manifest.resources.storage) == (None, None)


def test_set_makes_what_is_missing() -> None:
    manifest = parse(PLAIN, **{"data_stores[0].datastore": "kept", "data_stores[0].training_data.container": "digits"})
    assert manifest.data_stores[0].datastore == "kept"
    assert manifest.inputs[0][1].container == "digits"


def test_set_changes_one_of_two_that_share_an_anchor() -> None:
    text = PLAIN + "elastic: &e {min: 1, max: 2}\ncheckpoint: {every: 5m}\n"
    text = text.replace("name: python", "name: horovod") + "learners: 2\nlabels: {a: &v x, b: *v}\n"
    manifest = parse(text, **{"labels.a": "y"})
    assert manifest.labels == {"a": "y", "b": "x"}


def test_the_schema_takes_what_the_parser_takes() -> None:
    schema = manifest_schema()
    validator = validator_for(schema)
    for text in (PLAIN, FULL.replace("Horovod", "horovod"), FFDL.format(type="mount_cos")):
        # With every scalar as text: safe_load would make `on` a truth value.
        validator.validate(yaml.load(text, Loader=yaml.BaseLoader))
    validator.validate(yaml.safe_load(PLAIN) | {"learners": 2, "memory": 512, "version": 1.0, "max_runtime": 90})
    assert not validator.is_valid({"name": "x"})
    assert not validator.is_valid({**yaml.safe_load(PLAIN), "learnres": 2})
    assert not validator.is_valid({**yaml.safe_load(PLAIN), "learners": 0})
    assert set(schema["properties"]) == set(MANIFEST.fields)
    json.dumps(schema)


def test_a_typical_manifest_takes_little_time() -> None:
    """A hundred times the budget of 5 ms of processor time would still pass: only another order of growth fails."""
    parse(FULL)
    before = time.thread_time()
    for _ in range(10):
        parse(FULL)
    assert (time.thread_time() - before) / 10 < 0.5


def test_the_plain_call() -> None:
    parsed = parse_manifest(PLAIN, SETTINGS)
    assert isinstance(parsed, ParsedManifest)
    with pytest.raises(ManifestError):
        parse_manifest("", SETTINGS)
