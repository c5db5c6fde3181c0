"""The chart, installed by Helm on a real cluster: hooks, probes, restricted pods, and the engine with just its rights.

The cluster is an old one without DNS: servers are reached by addresses, and what it does not know is switched off.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.deploy import images
from tests.deploy.chart import CHART, HelmError, helm
from tests.deploy.forward import Forward, forward
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.fixtures import python_image
from tests.servers import Servers

import weft

__all__ = ["python_image"]

_SMALL = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}


@dataclasses.dataclass
class Installation:
    """A release, the ways to it, and what it was installed with."""

    kube: Cluster
    namespace: str
    chart: Path
    values: dict[str, Any]
    api: Forward
    token: str = ""

    @property
    def learners(self) -> str:
        return f"{self.namespace}-learners"

    @property
    def client(self) -> weft.Client:
        return weft.Client(f"http://{self.api.address}", self.token)

    def helm(self, command: str) -> str:
        """``helm install`` or ``upgrade`` with the values; raises HelmError with what the pods say."""
        try:
            return helm(
                *(command, "weft", str(self.chart), "--namespace", self.namespace, "--values", "-"),
                *("--kubeconfig", str(self.kube.kubeconfig), "--wait", "--timeout", "240s"),
                stdin=yaml.safe_dump(self.values),
                timeout=300,
            )
        except HelmError as error:
            raise HelmError(f"{error}\n{self.diagnosis()}") from None

    def diagnosis(self) -> str:
        where = ("-n", self.namespace)
        said = [self.kube.kubectl("get", "pods", *where, "-o", "wide")]
        said.append(self.kube.kubectl("get", "events", *where, "--field-selector", "type=Warning"))
        for pod in self.kube.items("pods", self.namespace):
            name = pod["metadata"]["name"]
            said.append(f"--- {name}")
            said.append(self.kube.kubectl("logs", name, *where, "--all-containers", "--tail", "30", check=False))
        return "\n".join(said)

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Those that are to stay, oldest first."""
        found = self.kube.items("pods", self.namespace, f"app.kubernetes.io/component={component}")
        there = [one for one in found if "deletionTimestamp" not in one["metadata"]]
        return sorted(there, key=lambda one: one["metadata"]["creationTimestamp"])

    def reach_api(self) -> None:
        """Lead the address that learners and this test know to an API pod: there is no kube-proxy."""
        self.api.target = (self.pods("api")[-1]["status"]["podIP"], 8080)

    def ask(self, path: str) -> httpx.Response:
        return httpx.get(f"http://{self.api.address}{path}", timeout=60)

    def secret(self, name: str) -> dict[str, str]:
        (found,) = [one for one in self.kube.items("secrets", self.namespace) if one["metadata"]["name"] == name]
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def can(self, account: str, verb: str, what: str, namespace: str) -> bool:
        user = f"system:serviceaccount:{self.namespace}:{account}"
        resource, _, part = what.partition("/")
        command = ("auth", "can-i", verb, resource, f"--subresource={part}", "-n", namespace, "--as", user)
        said = self.kube.kubectl(*command, check=False)
        return said.strip() == "yes"


def eventually(condition: Callable[[], Any], what: str, seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def _for_old_clusters(folder: Path) -> Path:
    """The chart without its lower bound of Kubernetes' version."""
    chart = folder / "weft"
    shutil.copytree(CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(re.sub(r"(?m)^kubeVersion:.*\n", "", text))
    return chart


@pytest.fixture(scope="module")
def installation(kube: Cluster, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
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
            "migrate": {"resources": _SMALL},
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
                "resources": _SMALL,
                "podDisruptionBudget": {"enabled": False},
            }
        values["api"]["autoscaling"] = {"enabled": False}
        values["worker"]["concurrency"] = 1
        one = Installation(kube, name, _for_old_clusters(tmp_path_factory.mktemp("chart")), values, api)
        try:
            one.helm("install")
            one.reach_api()
            command = ("exec", "deployment/weft-api", "-c", "api", "-n", name, "--")
            one.token = kube.kubectl(*command, "python", "-m", "weft_core.setup", "--token").strip()
            yield one
        finally:
            helm("uninstall", "weft", "--namespace", name, "--kubeconfig", str(kube.kubeconfig), "--ignore-not-found")
            kube.kubectl("delete", "pods", "--all", "-n", one.learners, "--grace-period=0", "--force", check=False)
            kube.kubectl("delete", "namespace", one.learners, "--wait=false", check=False)


def test_it_answers(installation: Installation) -> None:
    ready = {"status": "ready", "checks": {"postgres": "ok", "s3": "ok", "redis": "ok"}}
    eventually(lambda: installation.ask("/readyz").json() == ready, "ready")
    assert "weft_jobs" in installation.ask("/metrics").text


def test_hooks_leave_nothing_behind(installation: Installation) -> None:
    """The migrations have run before API and worker came, and their copies of credentials are gone."""
    kinds = installation.kube.kubectl("get", "jobs,configmaps,secrets", "-n", installation.namespace, "-o", "name")
    assert "migrate" not in kinds
    for component in ("api", "worker"):
        (pod,) = installation.pods(component)
        assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [0]


def test_a_job_runs_with_the_workers_rights_alone(installation: Installation, python_image: str) -> None:
    """The API server enforces them: a right that is missing shows in the engine's condition or the job's events."""
    (engine,) = eventually(
        lambda: [one for one in installation.client.engines() if one.seen_at], "a look at the engine"
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
    assert {one["metadata"]["labels"]["app.kubernetes.io/name"] for one in pods} == {"weft-learner"}
    job = job.wait(240, check=False)
    assert job.state == "COMPLETED", [event.message for event in job.events()]
    # Deleted by the worker; the cluster collects the rest.
    eventually(
        lambda: not installation.kube.items("secrets", installation.learners, "weft.dev/job"), "its Secret's end"
    )
    eventually(lambda: not installation.kube.items("pods", installation.learners), "its pods' end", 180)


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
        assert [one["metadata"]["uid"] for one in installation.pods(component)] == [uid]
    installation.values["settings"]["timings"]["grace"] = 60
    installation.helm("upgrade")
    assert installation.secret("weft") == before
    for component, uid in pods.items():
        assert [one["metadata"]["uid"] for one in installation.pods(component)] != [uid]
    installation.reach_api()
    assert [one.name for one in installation.client.jobs.list()]  # the administrator's token is still good


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
        assert [one["metadata"]["uid"] for one in installation.pods(component)] == [uid]
    eventually(lambda: installation.ask("/readyz").json()["status"] == "ready", "ready")
