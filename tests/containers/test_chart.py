"""The chart as it is installed by default, with its own Postgres, Redis and S3, from images of the real Dockerfiles.

A container engine builds the images and hands them to the test cluster, which pulls nothing. Postgres, Redis and
SeaweedFS are what the engine has under their official names.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
import yaml
from botocore.config import Config
from tests.containers.engine import BUILD, Engine, run
from tests.containers.service_names import service_names
from tests.deploy.chart import CHART, REPOSITORY, helm
from tests.deploy.forward import forward
from tests.deploy.installing import SMALL, Installation, eventually, for_old_clusters, left
from tests.kubernetes.cluster import Cluster, full
from tests.kubernetes.fixtures import kube

import weft

__all__ = ["kube"]

TRAINERS = "docker.io/weft-built"  # not `weft`, where other tests have images of the same names that no Dockerfile made
_DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
STORES = [full("{repository}:{tag}".format(**_DEFAULTS[store]["image"])) for store in ("postgres", "redis", "s3")]


@pytest.fixture(scope="module")
def tags(kube: Cluster, engine: Engine, api_image: str) -> tuple[str, str]:
    """Two tags of the service's images on every node, an older and a newer; beside them the stores' and a trainer."""
    worker_image = "weft/worker:chart"
    slim = ("--build-arg", "BASE=python:3.11-slim", "--build-arg", "TOOLS=")  # as docs/helm.md builds it
    engine.build("deploy/docker/worker.Dockerfile", worker_image, arguments=slim)
    trainers = ("--tool", engine.tool, "--repository", TRAINERS)
    run(str(REPOSITORY / "trainer_images" / "images"), *trainers, "python", timeout=BUILD)
    built = {"docker.io/weft/api": api_image, "docker.io/weft/worker": worker_image}
    # The tag depends on the content: a node may have images of an earlier run.
    mark = "-".join(_id(engine, reference).removeprefix("sha256:")[:12] for reference in built.values())
    tags = f"{mark}-1", f"{mark}-2"
    for name, image in built.items():
        for tag in tags:
            engine("tag", image, f"{name}:{tag}")
    wanted = [f"{name}:{tag}" for name in built for tag in tags]
    wanted += [*STORES, f"{TRAINERS}/python:3.11"]
    names_and_ids = {*wanted, *(_id(engine, reference) for reference in wanted)}
    if kube.missing(names_and_ids):
        with tempfile.TemporaryDirectory(prefix="weft-images-") as folder:
            archive = Path(folder, "images.tar")
            several = ["--multi-image-archive"] if engine.tool == "podman" else []
            engine("save", *several, "--output", str(archive), *wanted, timeout=BUILD)
            kube.load(archive, names_and_ids)
    return tags


def _id(engine: Engine, image: str) -> str:
    found = str(engine.image(image)["Id"])
    return found if found.startswith("sha256:") else f"sha256:{found}"


def _volume(name: str, folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "hostPath": {"path": str(folder)},
        },
    }


@pytest.fixture(scope="module")
def installation(
    kube: Cluster,
    tags: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    name = f"weft-chart-{uuid.uuid4().hex[:8]}"
    volumes = {store: f"{name}-{store}" for store in ("postgres", "s3")}
    # The test cluster lacks policy/v1, autoscaling/v2 and 8 CPUs. The rest is the chart's default.
    services = {
        "image": {"tag": tags[0]},
        "replicas": 1,
        "resources": SMALL,
        "podDisruptionBudget": {"enabled": False},
    }
    values: dict[str, Any] = {
        "settings": {"images": {"repository": TRAINERS}, "timings": {"heartbeat": 1, "sweep": 1}},
        "learners": {"namespace": f"{name}-learners"},
        "api": {**services, "autoscaling": {"enabled": False}},
        "worker": {**services, "concurrency": 1},
        "migrate": {"resources": SMALL},
        "redis": {"resources": SMALL},
    }
    for store, claimed in volumes.items():
        values[store] = {"resources": SMALL, "persistence": {"size": "1Gi", "storageClass": claimed}}
    with ExitStack() as stack:
        stack.enter_context(service_names(kube))
        api = stack.enter_context(forward(kube.host_ip))
        for claimed in volumes.values():
            # A folder of this machine, as there is no storage class. A hostPath does not take over fsGroup.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{claimed}-", dir="/tmp")))
            folder.chmod(0o777)
            kube.kubectl("apply", "-f", "-", stdin=json.dumps(_volume(claimed, folder)))
            stack.callback(kube.kubectl, "delete", "pv", claimed, "--wait=false", check=False)
        stack.enter_context(kube.namespace(name))
        installed = Installation(kube, name, for_old_clusters(tmp_path_factory.mktemp("chart")), values, api)
        stack.callback(kube.kubectl, "delete", "namespace", installed.learners, "--wait=false", check=False)
        stack.callback(_uninstall, installed)
        installed.helm("install")
        installed.reach_api()
        installed.token = _token(installed)
        yield installed


def _uninstall(installation: Installation) -> None:
    where = ("--namespace", installation.namespace, "--kubeconfig", str(installation.kube.kubeconfig))
    helm("uninstall", "weft", *where, "--wait", "--timeout", "600s", "--ignore-not-found", timeout=660)


def _token(installation: Installation) -> str:
    command = ("exec", "deployment/weft-api", "-c", "api", "-n", installation.namespace, "--")
    return installation.kube.kubectl(*command, "python", "-m", "weft_core.setup", "--token").strip()


def _address(installation: Installation, component: str) -> str:
    return str(installation.pods(component)[-1]["status"]["podIP"])


def _s3(installation: Installation) -> Any:
    kept = installation.secret("weft")
    return boto3.client(
        "s3",
        endpoint_url=f"http://{_address(installation, 's3')}:8333",
        region_name="us-east-1",
        aws_access_key_id=kept["s3-access-key"],
        aws_secret_access_key=kept["s3-secret-key"],
        config=Config(connect_timeout=10, read_timeout=60, s3={"addressing_style": "path"}),
    )


def _train(installation: Installation, name: str, command: str) -> weft.Job:
    kept = installation.secret("weft")
    store = {
        "auth_url": f"http://weft-s3.{installation.namespace}.svc:8333",
        "user_name": kept["s3-access-key"],
        "password": kept["s3-secret-key"],
    }
    return installation.client.train(
        {
            "name": name,
            "learners": 2,
            "cpus": 0.1,
            "memory": "256 MiB",
            "framework": {"name": "python", "version": "3.11", "command": command},
            "data_stores": [
                {"id": "s3", "type": "s3", "connection": store, "training_results": {"container": "results"}}
            ],
        }
    )


def _names(installation: Installation, kind: str, namespace: str = "") -> set[str]:
    found = installation.kube.items(kind, namespace or installation.namespace)
    return {pod["metadata"]["name"] for pod in found}


def _learners(installation: Installation, job: weft.Job) -> set[str]:
    """The pods of this job: those of a job that has just ended may still be there."""
    pods = installation.kube.items("pods", installation.learners)
    return {pod["metadata"]["uid"] for pod in pods if pod["metadata"]["name"].startswith(f"weft-{job.id}-")}


def test_what_is_bundled_comes_up_by_itself(installation: Installation) -> None:
    ready = {"status": "ready", "checks": {"postgres": "ok", "s3": "ok", "redis": "ok"}}
    eventually(lambda: installation.ask("/readyz").json() == ready, "ready")
    for component in ("postgres", "redis", "s3", "worker"):
        (pod,) = installation.pods(component)
        assert all(status["ready"] for status in pod["status"]["containerStatuses"]), component
    # Without Postgres there was nothing to migrate yet: the Job came with the other objects, and has completed.
    (job,) = installation.kube.items("jobs", installation.namespace)
    assert job["metadata"]["name"].startswith("weft-migrate-")
    assert job["status"].get("succeeded") == 1


def test_the_database_has_unicode_and_no_collation_of_its_c_library(installation: Installation) -> None:
    password = installation.secret("weft")["postgres-password"]
    where = f"host={_address(installation, 'postgres')} user=weft dbname=weft password={password} connect_timeout=30"
    with psycopg.connect(where) as connection:
        found = connection.execute(
            "select pg_encoding_to_char(encoding), datlocprovider::text, datlocale from pg_database "
            "where datname = current_database()"
        ).fetchone()
    assert found == ("UTF8", "b", "C.UTF-8")


def test_a_job_of_two_learners(installation: Installation) -> None:
    _s3(installation).create_bucket(Bucket="results")
    job = _train(installation, "chart", "echo I am $LEARNER_ID > $RESULT_DIR/$LEARNER_ID").wait(600, check=False)
    assert job.state == "COMPLETED", [event.message for event in job.events()]
    stored = _s3(installation).list_objects_v2(Bucket="results", Prefix=job.id)["Contents"]
    assert {stored_object["Key"].rpartition("/")[2] for stored_object in stored} >= {"1", "2"}


def test_an_upgrade_migrates_first_and_disturbs_no_job(installation: Installation, tags: tuple[str, str]) -> None:
    job = _train(installation, "long", "for n in $(seq 600); do test -e $CHECKPOINT_DIR/end && break; sleep 1; done")
    eventually(lambda: job.refresh().state == "PROCESSING", "it runs", 600)
    learners = _learners(installation, job)
    assert len(learners) == 2
    before = installation.secret("weft")
    for part in ("api", "worker"):
        installation.values[part]["image"] = {"tag": tags[1]}
    installation.helm("upgrade")
    installation.reach_api()
    # The hook has run, and neither it nor the first installation's Job is left.
    seen = installation.kube.items("events", installation.namespace)
    assert "weft-migrate" in {
        event["involvedObject"]["name"] for event in seen if event["involvedObject"]["kind"] == "Job"
    }
    assert _names(installation, "jobs") == set()
    assert "weft-migrate" not in _names(installation, "secrets") | _names(installation, "configmaps")
    assert installation.secret("weft") == before
    for part in ("api", "worker"):
        (pod,) = installation.pods(part)
        assert pod["spec"]["containers"][0]["image"].endswith(tags[1])
    assert _learners(installation, job) == learners
    job = installation.client.jobs.get(job.id)
    assert (job.state, len(job.attempts)) == ("PROCESSING", 1)
    job.halt(grace_seconds=1)
    assert job.wait(600, check=False).state == "HALTED"


def _rights(installation: Installation) -> set[str]:
    """Of the release, in the whole cluster."""
    found = installation.kube.items("clusterroles")
    found += installation.kube.items("clusterrolebindings")
    names = {resource["metadata"]["name"] for resource in found}
    return {name for name in names if name.startswith(installation.namespace)}


def test_what_an_uninstallation_leaves_and_another_installation_finds(installation: Installation) -> None:
    jobs = {listed.id for listed in installation.client.jobs.list()}
    assert len(jobs) == 2
    assert _rights(installation)
    _uninstall(installation)
    eventually(lambda: not installation.kube.items("pods", installation.namespace), "its pods' end")
    # As docs/helm.md says: credentials, volumes, the learners' namespace.
    claims = {f"PersistentVolumeClaim/data-weft-{store}-0" for store in ("postgres", "s3")}
    assert left(installation.kube, installation.namespace) == {"Secret/weft", *claims}
    assert left(installation.kube, installation.learners) == set()
    assert _rights(installation) == set()

    installation.helm("install")
    installation.reach_api()
    assert {listed.id for listed in installation.client.jobs.list()} == jobs, "with the token of before"
    job = installation.client.jobs.get(min(jobs))
    assert _s3(installation).list_objects_v2(Bucket="results")["KeyCount"] > 0
    assert job.events()

    _uninstall(installation)
    eventually(lambda: not installation.kube.items("pods", installation.namespace), "its pods' end")
    where = ("-n", installation.namespace)
    installation.kube.kubectl("delete", "secret", "weft", *where)
    installation.kube.kubectl("delete", "pvc", "-l", "app.kubernetes.io/instance=weft", *where)
    eventually(lambda: not left(installation.kube, installation.namespace), "nothing left")
