"""The chart, installed by Helm on a real cluster: hooks, probes, restricted pods, and the engine with just its rights.

The cluster is an old one without DNS: servers are reached by addresses, and what it does not know is switched off.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.deploy import images
from tests.deploy.chart import HelmError, helm
from tests.deploy.forward import forward
from tests.deploy.installing import SMALL, Installation, eventually, for_old_clusters
from tests.kubernetes.cluster import Cluster, is_bygone
from tests.servers import Servers

IMAGES = (images.service,)
SCRAPING = "a-token-of-prometheus"


@contextmanager
def begin(kube: Cluster, servers: Servers, folder: Path) -> Iterator[Installation]:
    name = f"weft-helm-{uuid.uuid4().hex[:8]}"
    repository, tag = images.service(kube)
    image = {"repository": repository, "tag": tag}
    with servers.postgres.connect() as connection:
        connection.execute(f'create database "{name}"')
    identity = servers.s3.identities[0]
    with ExitStack() as stack:
        ways = {
            "postgres": stack.enter_context(forward(kube.host_ip, servers.folder / ".s.PGSQL.5432")),
            "redis": stack.enter_context(forward(kube.host_ip, servers.redis.socket)),
            "s3": stack.enter_context(forward(kube.host_ip, ("127.0.0.1", servers.s3.port))),
        }
        api = stack.enter_context(forward(kube.host_ip))
        stack.enter_context(kube.namespace(name))
        values: dict[str, Any] = {
            "settings": {
                "engines": {"kubernetes": {"api_url": f"http://{api.address}"}},
                "timings": {"heartbeat": 1, "sweep": 1},
            },
            "learners": {"namespace": f"{name}-learners"},
            "migrate": {"resources": SMALL},
            "postgres": {"enabled": False, "url": f"postgresql://weft@{ways['postgres'].address}/{name}"},
            "redis": {"enabled": False, "url": f"redis://{ways['redis'].address}/0"},
            "s3": {
                "enabled": False,
                "endpoint": f"http://{ways['s3'].address}",
                "bucket": name,
                "accessKey": identity.access_key,
                "secretKey": identity.secret_key,
            },
        }
        for part in ("api", "worker"):
            # policy/v1 and autoscaling/v2 are newer than this cluster.
            values[part] = {
                "image": image,
                "replicas": 1,
                "resources": SMALL,
                "podDisruptionBudget": {"enabled": False},
            }
        values["api"]["autoscaling"] = {"enabled": False}
        values["api"]["extraEnv"] = [{"name": "WEFT_TELEMETRY__METRICS_TOKEN", "value": SCRAPING}]
        values["worker"]["concurrency"] = 1
        installed = Installation(kube, name, for_old_clusters(folder), values, api)
        try:
            installed.helm("install")
            installed.reach_api()
            command = ("exec", "deployment/weft-api", "-c", "api", "-n", name, "--")
            installed.token = kube.kubectl(*command, "python", "-m", "weft_core.setup", "--token").strip()
            yield installed
        finally:
            helm("uninstall", "weft", "--namespace", name, "--kubeconfig", str(kube.kubeconfig), "--ignore-not-found")
            kube.kubectl(
                "delete", "pods", "--all", "-n", installed.learners, "--grace-period=0", "--force", check=False
            )
            kube.kubectl("delete", "namespace", installed.learners, "--wait=false", check=False)


@pytest.fixture
def installation(releases: Callable[[str], Installation]) -> Installation:
    return releases("test_installation")


def test_it_answers(installation: Installation) -> None:
    ready = {"status": "ready", "checks": {"postgres": "ok", "row_security": "ok", "s3": "ok", "redis": "ok"}}
    eventually(lambda: installation.ask("/readyz").json() == ready, "ready")
    assert installation.ask("/metrics").status_code == 401
    assert "weft_jobs" in installation.ask("/metrics", SCRAPING).text


def test_hooks_leave_nothing_behind(installation: Installation) -> None:
    """The migrations have run before API and worker came, and their copies of credentials are gone."""
    kinds = installation.kube.kubectl("get", "jobs,configmaps,secrets", "-n", installation.namespace, "-o", "name")
    assert "migrate" not in kinds
    for component in ("api", "worker"):
        (pod,) = installation.pods(component)
        assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]


def test_a_job_runs_with_the_workers_rights_alone(installation: Installation, python_image: str) -> None:
    """The API server enforces them: a right that is missing shows in the engine's condition or the job's events."""
    (engine,) = eventually(
        lambda: [listed for listed in installation.client.engines() if listed.seen_at], "a look at the engine"
    )
    assert (engine.name, engine.error) == ("kubernetes", None)
    s3 = installation.values["s3"]
    store = {"auth_url": s3["endpoint"], "user_name": s3["accessKey"], "password": s3["secretKey"]}
    job = installation.client.train(
        {
            "name": "helm",
            "learners": 2,
            "cpus": 0.1,
            "memory": "256 MiB",
            "framework": {
                "name": "python",
                "version": "3.11",
                "command": "echo I am $LEARNER_ID > $RESULT_DIR/$LEARNER_ID",
            },
            "data_stores": [
                {"id": "s3", "type": "s3", "connection": store, "training_results": {"container": s3["bucket"]}}
            ],
        }
    )
    pods = eventually(lambda: installation.kube.items("pods", installation.learners), "the learners' pods")
    assert {pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods} == {"weft-learner"}
    job = job.wait(240, check=False)
    assert job.state == "COMPLETED", [event.message for event in job.events()]
    # Deleted by the worker; the cluster collects the rest.
    eventually(
        lambda: not installation.kube.items("secrets", installation.learners, "weft.dev/job"), "its Secret's end"
    )
    there = ("pods", installation.learners)
    eventually(lambda: all(map(is_bygone, installation.kube.items(*there))), "its pods' end")


def test_nobody_has_more_rights(installation: Installation) -> None:
    ours, theirs = installation.learners, installation.namespace
    assert installation.can("weft-worker", "create", "pods", ours)
    assert installation.can("weft-worker", "delete", "secrets", ours)
    assert installation.can("weft-worker", "list", "nodes", "")
    for verb, what, namespace in (
        ("create", "pods", theirs),
        ("get", "secrets", theirs),
        ("list", "secrets", "kube-system"),
        ("create", "pods/exec", ours),
        ("create", "pods/ephemeralcontainers", ours),
        ("update", "pods", ours),
        ("delete", "nodes", ""),
        ("create", "rolebindings", ours),
        ("create", "namespaces", ""),
    ):
        assert not installation.can("weft-worker", verb, what, namespace), (verb, what)
    for account in ("weft-api", "default"):
        for namespace in (ours, theirs):
            assert not installation.can(account, "list", "pods", namespace)
            assert not installation.can(account, "get", "secrets", namespace)


def test_an_upgrade_keeps_what_was_generated_and_rolls_the_pods(installation: Installation) -> None:
    before = installation.secret("weft")
    assert set(before) == {"database-url", "redis-url", "s3-access-key", "s3-secret-key", "secret-keys"}
    pods = {component: installation.pods(component)[0]["metadata"]["uid"] for component in ("api", "worker")}
    installation.helm("upgrade")
    assert installation.secret("weft") == before
    for component, uid in pods.items():  # nothing has changed
        assert [pod["metadata"]["uid"] for pod in installation.pods(component)] == [uid]
    installation.values["settings"]["timings"]["grace"] = 60
    installation.helm("upgrade")
    assert installation.secret("weft") == before
    for component, uid in pods.items():
        assert [pod["metadata"]["uid"] for pod in installation.pods(component)] != [uid]
    installation.reach_api()
    assert [job.name for job in installation.client.jobs.list()]  # the administrator's token is still good


def test_an_upgrade_that_can_not_be_stops_before_anything_is_replaced(installation: Installation) -> None:
    before = {component: installation.pods(component)[0]["metadata"]["uid"] for component in ("api", "worker")}
    values = json.loads(json.dumps(installation.values))
    # The schema of the values takes it, Weft does not.
    values["settings"]["timings"]["grace"] = 61
    values["api"]["extraEnv"] = [{"name": "WEFT_TIMINGS__SWEEP", "value": "often"}]
    broken = dataclasses.replace(installation, values=values)
    with pytest.raises(HelmError, match="pre-upgrade hooks failed"):
        broken.helm("upgrade")
    pod = installation.pods("migrate")[0]
    log = installation.kube.kubectl("logs", pod["metadata"]["name"], "-c", "migrate", "-n", installation.namespace)
    assert "timings.sweep" in log
    for component, uid in before.items():
        assert [item["metadata"]["uid"] for item in installation.pods(component)] == [uid]
    eventually(lambda: installation.ask("/readyz").json()["status"] == "ready", "ready")
    # The Job stays for its log, and not for ever: the cluster removes it and its pods in time.
    kube, where = installation.kube, ("-n", installation.namespace)
    (job,) = kube.items("jobs", installation.namespace)
    assert job["spec"]["ttlSecondsAfterFinished"] == 86400
    patch = '{"spec": {"ttlSecondsAfterFinished": 1}}'
    kube.kubectl("patch", "job", "weft-migrate", *where, "--type=merge", "--patch", patch)
    eventually(lambda: not kube.items("jobs", installation.namespace), "its time to live")
    eventually(lambda: not installation.pods("migrate"), "its pods' end")
