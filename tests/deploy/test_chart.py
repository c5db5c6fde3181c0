"""The rendered chart: objects that Kubernetes accepts, restricted pods, and no secret in the open."""

from __future__ import annotations

import base64
import copy
import importlib.util
from typing import Any

import pytest
import yaml
from fastapi.routing import APIRoute
from tests.deploy.chart import (
    CASES,
    CHART,
    EVERYTHING,
    EXTERNAL,
    REPOSITORY,
    Document,
    HelmError,
    Rendered,
    environment,
    helm,
    merged,
    names,
    render,
)
from tests.deploy.strict import problems

from weft_api.health.routes import router as health
from weft_core import __version__


def test_every_object_is_one_of_kubernetes(rendered: Rendered) -> None:
    wrong = {
        f"{document['kind']} {document['metadata']['name']}": problems(document) for document in rendered.documents
    }
    assert {name: found for name, found in wrong.items() if found} == {}
    ids = [
        (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
        for document in rendered.documents
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("spec", "replica"), 2, "spec.replica: Extra inputs are not permitted"),
        (
            ("spec", "template", "spec", "containers", 0, "port"),
            [],
            "containers.0.port: Extra inputs are not permitted",
        ),
        (("spec", "template", "spec", "containers", 0, "env"), [{"value": "x"}], "env.0.name: Field required"),
        (("spec", "minReadySeconds"), "10", "spec.minReadySeconds: Input should be a valid integer"),
        (("metadata", "labels", "a"), True, "metadata.labels.a: Input should be a valid string"),
        (("spec", "min_ready_seconds"), 10, "read as something else"),
        (("metadata", "name"), "A b", "metadata.name: 'A b' is no name"),
        (("kind",), "Deploymint", "no such kind"),
        (("apiVersion",), "batch/v1", "no such kind"),
    ],
)
def test_the_check_finds_what_is_wrong(path: tuple[str | int, ...], value: Any, problem: str) -> None:
    document: Any = copy.deepcopy(render({}).one("Deployment", "weft-worker"))
    assert problems(document) == []
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert any(problem in found for found in problems(document)), problems(document)


def test_helm_finds_nothing_to_complain_about() -> None:
    assert "0 chart(s) failed" in helm("lint", str(CHART), "--strict")


def test_it_is_for_clusters_from_1_28_on() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == ">=1.28.0-0"
    assert chart["version"] == chart["appVersion"] == __version__
    with pytest.raises(Exception, match="incompatible with Kubernetes"):
        helm("template", "weft", str(CHART), "--kube-version", "1.27.9")


def test_the_parts_are_there() -> None:
    everything = render(EVERYTHING)
    kinds = {document["kind"] for document in everything.documents}
    assert kinds >= {
        *("Deployment", "StatefulSet", "Job", "Service", "Ingress", "ServiceMonitor", "HorizontalPodAutoscaler"),
        *("PodDisruptionBudget", "NetworkPolicy", "Namespace", "ResourceQuota", "ServiceAccount"),
        *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Secret"),
    }
    for budget in everything.all("PodDisruptionBudget"):
        assert budget["apiVersion"] == "policy/v1"
    scaler = everything.one("HorizontalPodAutoscaler", "weft-api")
    assert scaler["apiVersion"] == "autoscaling/v2"
    assert "replicas" not in everything.one("Deployment", "weft-api")["spec"]  # the autoscaler's
    fixed = render({"api": {"autoscaling": {"enabled": False}, "replicas": 3}})
    assert fixed.one("Deployment", "weft-api")["spec"]["replicas"] == 3
    assert not fixed.all("HorizontalPodAutoscaler")


def test_servers_of_ones_own_leave_no_bundled_ones() -> None:
    external = render(EXTERNAL)
    assert not external.all("StatefulSet")
    assert names(external.all("Deployment")) == ["weft-api", "weft-worker"]


# --- pods ---


def test_pods_are_restricted(rendered: Rendered) -> None:
    """As Kubernetes' pod security standard `restricted` wants them, and a read-only root besides."""
    for name, pod in rendered.pods():
        spec = pod["spec"]
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        for volume in spec["volumes"]:
            assert set(volume) <= {"name", "configMap", "secret", "emptyDir"}, name
        # Or a Service called `weft-api` would put WEFT_API_PORT into the environment.
        assert spec["enableServiceLinks"] is False, name
    for name, container in rendered.containers():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert {"requests", "limits"} <= set(container["resources"]), name


def test_only_the_worker_has_a_token_of_the_cluster(rendered: Rendered) -> None:
    for name, pod in rendered.pods():
        assert pod["spec"]["automountServiceAccountToken"] == (name == "weft-worker"), name
    assert rendered.one("ServiceAccount", "weft-api")["automountServiceAccountToken"] is False


def test_mounts_have_volumes(rendered: Rendered) -> None:
    for name, pod in rendered.pods():
        claims = [
            claim["metadata"]["name"]
            for document in rendered.all("StatefulSet")
            if document["metadata"]["name"] == name
            for claim in document["spec"]["volumeClaimTemplates"]
        ]
        volumes = names([{"metadata": volume} for volume in pod["spec"]["volumes"]]) + claims
        assert len(set(volumes)) == len(volumes), name
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            mounts = [mount["name"] for mount in container["volumeMounts"]]
            assert set(mounts) <= set(volumes), name
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(set(paths)) == len(paths), name


def test_commands_can_be_run(rendered: Rendered) -> None:
    modules = set()
    for name, container in rendered.containers():
        command = [*container.get("command", ()), *container.get("args", ())]
        if command[:2] == ["python", "-m"]:
            modules.add(command[2])
            assert importlib.util.find_spec(command[2]), command
        elif command[:2] == ["sh", "-c"] and "python -m" in command[2]:
            modules.add(command[2].split("python -m ")[1].split()[0])
        elif command[:2] == ["python", "-c"]:
            imported = command[2].partition(";")[0]
            exec(compile(imported, name, "exec"), {})
    modules -= {"weft_embedded.forward"}  # the bundled S3's
    assert modules == {"weft_api", "weft_workers", "weft_core.store.migrate", "weft_core.setup"}
    for module in modules:
        assert importlib.util.find_spec(module), module


def test_probes_ask_what_the_api_answers(rendered: Rendered) -> None:
    routes = {route.path for route in health.routes if isinstance(route, APIRoute)}
    api = rendered.pod("api")["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in api["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert api[probe]["httpGet"]["path"] in routes
        assert api[probe]["httpGet"]["port"] in ports
    assert api["livenessProbe"]["httpGet"]["path"] == "/healthz"  # never /readyz: S3 away must not restart the API
    assert api["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert ports == {"http": rendered.settings["api"]["port"]}
    for monitor in rendered.all("ServiceMonitor"):
        assert monitor["spec"]["endpoints"][0]["path"] in routes
    worker = rendered.pod("worker")["spec"]["containers"][0]
    script = worker["readinessProbe"]["exec"]["command"][0]
    assert f"/usr/local/bin/{script}" in (REPOSITORY / "deploy/docker/worker.Dockerfile").read_text()


def test_pods_end_in_order() -> None:
    """SIGTERM comes when the proxies know, and SIGKILL after everything that the process waits for."""
    from weft_api.__main__ import _SHUTDOWN
    from weft_workers.sweeper_process import _PATIENCE

    rendered = render({})
    api = rendered.pod("api")["spec"]
    drain = int(api["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert api["terminationGracePeriodSeconds"] > drain + _SHUTDOWN + 5
    assert rendered.pod("worker")["spec"]["terminationGracePeriodSeconds"] > _PATIENCE + 15
    assert rendered.one("Deployment", "weft-api")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_pods_roll_when_settings_or_credentials_change() -> None:
    def checksums(values: dict[str, Any]) -> list[Document]:
        rendered = render(merged(EXTERNAL, {"secretKeys": {"value": "A" * 43 + "="}}, values))
        return [rendered.pod(name)["metadata"]["annotations"] for name in ("api", "worker")]

    before = checksums({})
    assert checksums({}) == before
    assert checksums({"api": {"replicas": 5}, "networkPolicies": {"enabled": False}}) == before
    for change in (
        {"settings": {"timings": {"grace": 30}}},
        {"s3": {"secretKey": "another"}},
        {"postgres": {"url": "postgresql://weft:another@db.example.org/weft"}},
    ):
        after = checksums(change)
        assert after[0] != before[0], change
        assert after[1] != before[1], change


def test_images_are_the_charts_version_unless_told() -> None:
    default = render({}).pod("api")["spec"]["containers"][0]
    assert default["image"] == "weft/api:0.1.0"
    tagged = render({"api": {"image": {"repository": "images.example.org/weft/api", "tag": "0.2.0"}}})
    assert tagged.pod("api")["spec"]["containers"][0]["image"] == "images.example.org/weft/api:0.2.0"
    assert tagged.pod("migrate")["spec"]["containers"][0]["image"] == "images.example.org/weft/api:0.2.0"
    pinned = render(EVERYTHING).pod("api")["spec"]["containers"][0]
    assert pinned["image"] == "weft/api@sha256:" + "0" * 64


def test_bundled_servers_are_those_of_compose() -> None:
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    rendered = render({})
    for name in ("postgres", "redis", "s3"):
        container = rendered.pod(name)["spec"]["containers"][0]
        assert container["image"] == compose[name]["image"], name
    initdb = environment(rendered.pod("postgres")["spec"]["containers"][0])["POSTGRES_INITDB_ARGS"]
    assert initdb["value"] == compose["postgres"]["environment"]["POSTGRES_INITDB_ARGS"]
    mount = compose["postgres"]["volumes"][0].partition(":")[2]
    assert mount in [
        mounted["mountPath"] for mounted in rendered.pod("postgres")["spec"]["containers"][0]["volumeMounts"]
    ]


# --- hooks ---


def test_migrations_come_before_the_release_where_the_servers_are_there() -> None:
    for case in ("external", "existing"):
        rendered = render(CASES[case])
        hooks = {
            (document["kind"], document["metadata"]["name"]): document["metadata"]["annotations"]
            for document in rendered.documents
            if "helm.sh/hook" in document["metadata"].get("annotations", {})
        }
        assert ("Job", "weft-migrate") in hooks
        assert hooks["Job", "weft-migrate"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        # A failed Job leaves its copies of settings and credentials: they go with the release.
        others = {hook["helm.sh/hook"] for (kind, _), hook in hooks.items() if kind != "Job"}
        assert others == {"pre-install,pre-upgrade,post-delete"}
        # Nothing else of the release is there when they run: what the job refers to comes with it, and before it.
        weight = {name: int(hook["helm.sh/hook-weight"]) for name, hook in hooks.items()}
        job = rendered.one("Job", "weft-migrate")["spec"]["template"]["spec"]
        assert "serviceAccountName" not in job
        needed = {("ConfigMap", volume["configMap"]["name"]) for volume in job["volumes"] if "configMap" in volume}
        for container in (*job["initContainers"], *job["containers"]):
            for variable in container["env"]:
                if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                    needed.add(("Secret", reference["name"]))
        ours = {resource for resource in needed if not resource[1].startswith("my-")}
        assert ours == set(hooks) - {("Job", "weft-migrate")}
        assert all(weight[resource] < weight["Job", "weft-migrate"] for resource in ours)


def test_migrations_run_beside_bundled_servers_that_are_still_to_come() -> None:
    """A hook before them would wait for ever; one after them, too: the API is not ready without tables and bucket."""
    for values in ({}, {"postgres": EXTERNAL["postgres"]}, {"s3": EXTERNAL["s3"]}):
        rendered = render(values)
        assert not [
            document for document in rendered.documents if "helm.sh/hook" in document["metadata"].get("annotations", {})
        ]
        (job,) = rendered.all("Job")
        assert job["metadata"]["name"].startswith("weft-migrate-")
        assert job["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == "weft"
    values = {"secretKeys": {"value": "A" * 43 + "="}}  # nothing generated but passwords, which are no part of it
    before, same, after = (
        render(merged(values, change)).all("Job")[0]["metadata"]["name"]
        for change in ({}, {"worker": {"replicas": 3}}, {"api": {"image": {"tag": "0.2.0"}}})
    )
    assert before == same
    assert before != after  # a Job can't be changed


def test_a_migrations_job_does_not_stay_for_ever() -> None:
    """Helm forgets those of revisions that failed; each has a name of its own where servers are still to come."""
    for values in ({}, EXTERNAL):
        (job,) = render(values).all("Job")
        assert job["spec"]["ttlSecondsAfterFinished"] == 86400
        for seconds in (60, None):
            (job,) = render(merged(values, {"migrate": {"ttlSecondsAfterFinished": seconds}})).all("Job")
            assert job["spec"].get("ttlSecondsAfterFinished") == seconds
    for wrong in (0, -1, "soon"):
        with pytest.raises(HelmError, match="ttlSecondsAfterFinished"):
            render({"migrate": {"ttlSecondsAfterFinished": wrong}})


def test_the_migrations_job_does_them_in_order() -> None:
    job = render({}).pod("migrate")["spec"]
    assert "weft_core.store.migrate" in job["initContainers"][0]["command"][2]
    assert "weft_core.setup" in job["containers"][0]["command"][2]


# --- secrets ---


def test_no_credential_stands_in_the_open() -> None:
    values = merged(EXTERNAL, {"secretKeys": {"value": "A" * 43 + "="}})
    secrets = ["pg-secret", "redis-secret", "access-secret", "s3-confidential", "A" * 43]
    for document in render(values).documents:
        text = yaml.safe_dump(document)
        if document["kind"] == "Secret":
            continue
        assert not [secret for secret in secrets if secret in text], document["metadata"]["name"]
        assert not [
            base64.b64encode(s.encode()).decode() for s in secrets if base64.b64encode(s.encode()).decode() in text
        ]


def test_each_pod_gets_the_credentials_that_it_needs_and_no_more() -> None:
    rendered = render(merged(EXTERNAL, {"secretKeys": {"value": "A" * 43 + "="}}))
    secrets = {secret["metadata"]["name"]: secret["data"] for secret in rendered.all("Secret")}

    def found(container: Document) -> dict[str, str]:
        references = {
            name: variable["valueFrom"]["secretKeyRef"]
            for name, variable in environment(container).items()
            if "valueFrom" in variable
        }
        return {n: base64.b64decode(secrets[r["name"]][r["key"]]).decode() for n, r in references.items()}

    database = {"WEFT_DATABASE_URL": "postgresql://weft:pg-secret@db.example.org/weft"}
    store = {"WEFT_S3__ACCESS_KEY": "access-secret", "WEFT_S3__SECRET_KEY": "s3-confidential"}
    all_of_it = {
        **database,
        **store,
        "WEFT_REDIS_URL": "redis://:redis-secret@redis.example.org:6379/0",
        "WEFT_SECRET_KEYS": "A" * 43 + "=",
    }
    assert found(rendered.pod("api")["spec"]["containers"][0]) == all_of_it
    assert found(rendered.pod("worker")["spec"]["containers"][0]) == all_of_it
    assert found(rendered.pod("api")["spec"]["initContainers"][0]) == database
    assert found(rendered.pod("migrate")["spec"]["containers"][0]) == {**database, **store}
    assert set(secrets["weft-migrate"]) == {"database-url", "s3-access-key", "s3-secret-key"}


def test_secrets_of_ones_own_leave_none_of_the_charts() -> None:
    rendered = render(CASES["existing"])
    assert not rendered.all("Secret")
    variables = environment(rendered.pod("api")["spec"]["containers"][0])
    assert {
        name: tuple(variable["valueFrom"]["secretKeyRef"].values())
        for name, variable in variables.items()
        if "valueFrom" in variable
    } == {
        "WEFT_DATABASE_URL": ("my-database", "database-url"),
        "WEFT_REDIS_URL": ("my-redis", "url"),
        "WEFT_S3__ACCESS_KEY": ("my-s3", "s3-access-key"),
        "WEFT_S3__SECRET_KEY": ("my-s3", "s3-secret-key"),
        "WEFT_SECRET_KEYS": ("my-keys", "secret-keys"),
    }


def test_prometheus_gets_the_token_that_the_api_asks_for() -> None:
    for values, secret in (
        ({}, {"name": "weft", "key": "metrics-token"}),
        ({"existingSecret": {"name": "mine", "key": "token"}}, {"name": "mine", "key": "token"}),
    ):
        rendered = render({"serviceMonitor": {"enabled": True, **values}})
        (endpoint,) = rendered.one("ServiceMonitor", "weft-api")["spec"]["endpoints"]
        assert endpoint["authorization"] == {"type": "Bearer", "credentials": secret}
        variables = environment(rendered.pod("api")["spec"]["containers"][0])
        assert variables["WEFT_TELEMETRY__METRICS_TOKEN"]["valueFrom"]["secretKeyRef"] == secret
        assert ("metrics-token" in rendered.one("Secret", "weft")["data"]) is (secret["name"] == "weft")
    assert "WEFT_TELEMETRY__METRICS_TOKEN" not in environment(render({}).pod("api")["spec"]["containers"][0])


def test_bundled_servers_take_passwords_from_ones_own_secrets() -> None:
    rendered = render(
        {"postgres": {"existingSecret": {"name": "mine", "key": "pg"}}, "redis": {"existingSecret": {"name": "mine"}}}
    )
    for component, variable in (
        ("postgres", "POSTGRES_PASSWORD"),
        ("api", "POSTGRES_PASSWORD"),
        ("worker", "POSTGRES_PASSWORD"),
    ):
        reference = environment(rendered.pod(component)["spec"]["containers"][0])[variable]["valueFrom"]
        assert reference["secretKeyRef"] == {"name": "mine", "key": "pg"}
    reference = environment(rendered.pod("redis")["spec"]["containers"][0])["REDISCLI_AUTH"]["valueFrom"]
    assert reference["secretKeyRef"] == {"name": "mine", "key": "redis-password"}
    assert set(rendered.one("Secret", "weft")["data"]) == {"secret-keys", "s3-access-key", "s3-secret-key"}


def test_engines_credentials_are_mounted_in_the_worker_alone() -> None:
    rendered = render(EVERYTHING)
    worker = rendered.pod("worker")["spec"]
    mounts = {mount["mountPath"] for mount in worker["containers"][0]["volumeMounts"]}
    assert {"/etc/weft/engines/ray", "/etc/weft/engines/elsewhere"} <= mounts
    secrets = {volume["secret"]["secretName"] for volume in worker["volumes"] if "secret" in volume}
    assert secrets == {"ray-token", "kubeconfigs"}
    for name, pod in rendered.pods():
        if name != "weft-worker":
            assert not [volume for volume in pod["spec"]["volumes"] if "secret" in volume]
