"""The objects that are sent to the server: complete, valid by the client's own models, and as restricted as
possible."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.workers.engines.kubernetes.samples import ENGINE, INSTALLATION, MIB, settings, spec
from tests.workers.engines.kubernetes.strict import check

from weft_core import __version__
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec, Placement, Toleration
from weft_workers.engines.kubernetes import KubernetesEngine, names, objects

Json = dict[str, Any]
OWNER = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "weft-job-1-1", "namespace": "learners", "uid": "uid-secret"},
}
FULL_SETTINGS = {
    "queue": "team-{project}",
    "cache_claim": "cache",
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "node_selector": {"pool": "training", "zone": "a"},
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priority_class": "low",
    "image_pull_secrets": ["registry"],
    "egress": ["192.0.2.0/24", {"cidr": "fd00::/64", "ports": [9000]}, {"host": "minio.lan"}],
}
FULL_SPEC = {
    "gpus": 2,
    "gpu_type": "v100",
    "storage": 50 << 30,
    "extra": {"vendor.com/nic": 1.0},
    "endpoints": ("https://s3.example.com", "http://[fd00::7]:9000"),
    "placement": Placement(
        node_selector={"zone": "b"},
        tolerations=(Toleration(key="spot", value="yes", effect="NoExecute"),),
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                    ]
                }
            }
        },
        priority_class="high",
        image_pull_secrets=("registry", "other"),
        avoid=("bad-node",),
    ),
}


@pytest.fixture(autouse=True)
def _no_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_workers.engines.kubernetes.network.resolve", lambda host: ["93.184.215.14"])


def make_pod(
    chosen: KubernetesSettings | None = None, what: LaunchSpec | None = None, rank: int = 0, **more: Any
) -> Json:
    return objects.pod(ENGINE, chosen or settings(), "registry.example/weft", what or spec(), rank, OWNER, **more)


def policy(chosen: KubernetesSettings, what: LaunchSpec) -> Json:
    return objects.policy(ENGINE, what, OWNER, objects.egress(chosen, what))


def container(pod: Json) -> Json:
    containers: list[Json] = pod["spec"]["containers"]
    [only] = containers
    return only


def environment(pod: Json) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container(pod)["env"] if "value" in variable}


@pytest.mark.parametrize("full", [False, True], ids=["plain", "full"])
def test_the_clients_models_know_every_field(full: bool) -> None:
    chosen = settings(**FULL_SETTINGS) if full else settings()
    what = spec(**FULL_SPEC) if full else spec()
    check("V1Secret", objects.secret(ENGINE, what))
    check("V1NetworkPolicy", policy(chosen, what))
    check("V1Namespace", objects.namespace("learners", what))
    check("V1Pod", make_pod(chosen, what, gpu_types=["Tesla-V100"] if full else []))
    check("V1Pod", make_pod(chosen, replace(what, image="mine:1")))


def test_learners_use_the_addresses_that_their_policy_opens() -> None:
    made = policy(settings(), spec(endpoints=("https://s3.example.com", "https://93.184.215.15")))
    pod = make_pod(hosts=objects.hosts(made))
    check("V1Pod", pod)
    assert pod["spec"]["hostAliases"] == [{"ip": "93.184.215.14", "hostnames": ["s3.example.com"]}]
    assert {
        "to": [{"ipBlock": {"cidr": "93.184.215.14/32"}}],
        "ports": [{"protocol": "TCP", "port": 443}],
    } in made["spec"]["egress"]
    assert "hostAliases" not in make_pod(hosts=objects.hosts(policy(settings(), spec())))["spec"]


def test_the_check_is_strict() -> None:
    pod = make_pod()
    pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    with pytest.raises(AssertionError, match="unknown fields"):
        check("V1Pod", pod)
    with pytest.raises(AssertionError, match="is no str"):
        check("V1Pod", {"metadata": {"labels": {"a": 1}}})


# https://kubernetes.io/docs/concepts/security/pod-security-standards/: baseline and restricted
_ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
RESTRICTED: dict[str, Callable[[Json, Json], bool]] = {
    "no host namespaces": lambda pod, container: not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(),
    "not privileged": lambda pod, container: not container["securityContext"].get("privileged"),
    "no host ports": lambda pod, container: not any(port.get("hostPort") for port in container.get("ports", [])),
    "no SELinux or AppArmor of its own": lambda pod, container: (
        not {"seLinuxOptions", "appArmorProfile"}
        & (pod["securityContext"].keys() | container["securityContext"].keys())
    ),
    "proc mount": lambda pod, container: "procMount" not in container["securityContext"],
    "no sysctls": lambda pod, container: "sysctls" not in pod["securityContext"],
    "volume types": lambda pod, container: all(
        (volume.keys() - {"name"}) <= _ALLOWED_VOLUMES and len(volume) == 2 for volume in pod["volumes"]
    ),
    "no privilege escalation": lambda pod, container: container["securityContext"]["allowPrivilegeEscalation"] is False,
    "not root": lambda pod, container: (
        pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"].get("runAsUser") != 0
    ),
    "seccomp": lambda pod, container: pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"},
    "capabilities": lambda pod, container: container["securityContext"]["capabilities"] == {"drop": ["ALL"]},
    # and what Weft wants besides
    "read-only root": lambda pod, container: container["securityContext"]["readOnlyRootFilesystem"] is True,
    "no token": lambda pod, container: pod["automountServiceAccountToken"] is False,
    "no service links": lambda pod, container: pod["enableServiceLinks"] is False,
    "never restarted": lambda pod, container: pod["restartPolicy"] == "Never",
}


@pytest.mark.parametrize("rule", RESTRICTED)
@pytest.mark.parametrize("user", [10001, None], ids=["user", "the cluster's choice"])
def test_pods_are_restricted(rule: str, user: int | None) -> None:
    pod = make_pod(settings(run_as_user=user, **FULL_SETTINGS), spec(**FULL_SPEC))
    assert RESTRICTED[rule](pod["spec"], container(pod))
    pod = make_pod(settings(run_as_user=user), spec(image="mine:1"))
    [brings] = pod["spec"]["initContainers"]
    assert RESTRICTED[rule](pod["spec"], container(pod))
    assert RESTRICTED[rule](pod["spec"], brings)


def test_the_user_and_its_group_are_the_settings() -> None:
    context = make_pod(settings(run_as_user=4711))["spec"]["securityContext"]
    assert {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {4711}
    assert not {"runAsUser", "fsGroup"} & make_pod(settings(run_as_user=None))["spec"]["securityContext"].keys()


def test_everything_is_labelled_and_owned() -> None:
    what = spec()
    secret, policy, pod = (
        objects.secret(ENGINE, what),
        objects.policy(ENGINE, what, OWNER, objects.egress(settings(), what)),
        make_pod(rank=1),
    )
    common = {
        "app.kubernetes.io/managed-by": "weft",
        "app.kubernetes.io/name": "weft-learner",
        "weft.dev/engine": ENGINE,
        "weft.dev/installation": INSTALLATION,
        "weft.dev/project": "prj-1",
        "weft.dev/job": "job-1",
        "weft.dev/attempt": "1",
        "weft.dev/run": "weft-job-1-1",
    }
    assert secret["metadata"]["labels"] == policy["metadata"]["labels"] == common
    assert pod["metadata"]["labels"] == {**common, "weft.dev/learner": "2"}
    assert pod["metadata"]["name"] == "weft-job-1-1-2"
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "weft-job-1-1", "uid": "uid-secret"}
    assert pod["metadata"]["ownerReferences"] == policy["metadata"]["ownerReferences"] == [owner]
    assert secret["metadata"]["annotations"]["weft.dev/learners"] == "2"
    assert pod["metadata"]["annotations"] == {"weft.dev/job-name": "mnist", "weft.dev/project-name": "Vision & more"}


def test_the_token_is_in_the_secret_and_nowhere_else() -> None:
    what = spec()
    assert objects.secret(ENGINE, what)["stringData"] == {"token": "attempt-token"}
    pod = make_pod()
    assert "attempt-token" not in repr(pod)
    [token] = [variable for variable in container(pod)["env"] if variable["name"] == "WEFT_ATTEMPT_TOKEN"]
    assert token["valueFrom"] == {"secretKeyRef": {"name": "weft-job-1-1", "key": "token"}}


def test_a_learners_environment() -> None:
    pod = make_pod(what=spec(cpus=3.5), rank=1)
    assert container(pod)["command"] == ["python", "-m", "weft_trainer"]
    assert environment(pod) == {
        "WEFT_API_URL": "http://10.1.2.3:8080",
        "WEFT_RANK": "1",
        "WEFT_NUM_LEARNERS": "2",
        "WEFT_WORKDIR": "/weft/work",
        "WEFT_CACHE_DIR": "/weft/cache",
        "WEFT_GRACE_SECONDS": "30",
        "HOME": "/weft",
        "TMPDIR": "/tmp",
        "USER": "weft",
        "LOGNAME": "weft",
        "OMP_NUM_THREADS": "3",
    }
    [address] = [variable for variable in container(pod)["env"] if variable["name"] == "WEFT_ADVERTISE_ADDRESS"]
    assert address["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert pod["spec"]["terminationGracePeriodSeconds"] > 30


def test_kubernetes_expands_nothing_in_values() -> None:
    url = "http://x/$(WEFT_RANK)$HOME$$"
    assert environment(make_pod(what=spec(api_url=url)))["WEFT_API_URL"] == "http://x/$$(WEFT_RANK)$$HOME$$$$"


def test_requests_are_limits() -> None:
    what = spec(cpus=1.5, memory=512 * MIB, gpus=2, storage=10 << 30, extra={"vendor.com/nic": 1.0, "none.com/x": 0})
    resources = container(make_pod(settings(gpu_resource="amd.com/gpu"), what))["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"] == {
        "cpu": "1500m",
        "memory": str(512 * MIB),
        "amd.com/gpu": "2",
        "ephemeral-storage": str(10 << 30),
        "vendor.com/nic": "1",
    }
    assert container(make_pod(what=spec(cpus=0.1)))["resources"]["limits"].keys() == {"cpu", "memory"}


@pytest.mark.parametrize(("cpus", "wanted"), [(0.1, "100m"), (1, "1000m"), (0.3, "300m"), (1 / 3, "334m")])
def test_cpus_are_thousandths(cpus: float, wanted: str) -> None:
    assert container(make_pod(what=spec(cpus=cpus)))["resources"]["limits"]["cpu"] == wanted


def test_what_a_learner_may_write_is_mounted_and_limited() -> None:
    pod = make_pod(what=spec(storage=7 << 30, memory=1 << 30))
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    paths = {mounted["mountPath"]: volumes[mounted["name"]] for mounted in container(pod)["volumeMounts"]}
    assert paths["/weft"]["emptyDir"] == paths["/tmp"]["emptyDir"] == {"sizeLimit": str(7 << 30)}
    assert paths["/dev/shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": str(1 << 29)}
    env = environment(pod)
    assert all(env[name].startswith("/weft") for name in ("HOME", "WEFT_WORKDIR", "WEFT_CACHE_DIR"))
    assert env["TMPDIR"] == "/tmp", "a `pip install` of the command writes there, into its home and below WEFT_WORKDIR"
    shm = make_pod(settings(shared_memory=5 * MIB))["spec"]["volumes"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(5 * MIB)}} in shm


def test_a_cache_may_be_a_claim() -> None:
    pod = make_pod(settings(cache_claim="shared-cache", cache_size=5 << 30))
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "shared-cache"}} in pod["spec"]["volumes"]
    [mount] = [mounted for mounted in container(pod)["volumeMounts"] if mounted["name"] == "cache"]
    assert mount["mountPath"] == environment(pod)["WEFT_CACHE_DIR"]
    assert mount["subPath"] == spec().project_id, "no project sees what another's learners have brought"
    assert environment(pod)["WEFT_CACHE_SIZE"] == str(5 << 30)


def test_the_profile_goes_over_the_engines_defaults() -> None:
    pod = make_pod(settings(**FULL_SETTINGS), spec(**FULL_SPEC))["spec"]
    assert pod["nodeSelector"] == {"pool": "training", "zone": "b"}
    assert pod["priorityClassName"] == "high"
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]
    assert {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert {"key": "spot", "value": "yes", "effect": "NoExecute"} in pod["tolerations"]
    assert pod["affinity"].keys() == {"podAntiAffinity", "nodeAffinity"}
    plain = make_pod()["spec"]
    assert not {"nodeSelector", "affinity", "priorityClassName", "imagePullSecrets"} & plain.keys()


def test_nodes_to_avoid_are_kept_out_of_every_alternative() -> None:
    full = FULL_SPEC["placement"]
    assert isinstance(full, Placement)
    placement = replace(full, avoid=("node-1", "node-2"))
    pod = make_pod(settings(), spec(**{**FULL_SPEC, "placement": placement}), gpu_types=["V100"])
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    away = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("node-1", "node-2")]
    assert [term["matchFields"][-2:] for term in terms["nodeSelectorTerms"]] == [away, away]
    alone = make_pod(what=spec(placement=Placement(avoid=("node-1",))))["spec"]["affinity"]["nodeAffinity"]
    assert alone["requiredDuringSchedulingIgnoredDuringExecution"] == {"nodeSelectorTerms": [{"matchFields": away[:1]}]}


def test_a_gpu_type_is_asked_of_every_alternative() -> None:
    what = spec(**FULL_SPEC)
    pod = make_pod(settings(gpu_type_label="gpu.kind"), what, gpu_types=["Tesla-V100", "V100-32"])
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wish = {"key": "gpu.kind", "operator": "In", "values": ["Tesla-V100", "V100-32"]}
    assert [term["matchExpressions"][-1] for term in terms["nodeSelectorTerms"]] == [wish, wish]
    assert terms["nodeSelectorTerms"][1]["matchFields"]
    theirs = what.placement.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert wish not in theirs["nodeSelectorTerms"][0]["matchExpressions"], "the profile itself is not changed"
    alone = make_pod(what=spec(gpus=1, gpu_type="v100"), gpu_types=["V100"])["spec"]["affinity"]["nodeAffinity"]
    [term] = alone["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [expression["values"] for expression in term["matchExpressions"]] == [["V100"]]


def test_a_silent_node_ends_no_learner() -> None:
    tolerations = make_pod()["spec"]["tolerations"]
    for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"):
        assert {"key": key, "operator": "Exists", "effect": "NoExecute"} in tolerations, "without an end"
    everything = settings(tolerations=[{"operator": "Exists"}])
    assert make_pod(everything)["spec"]["tolerations"] == [{"operator": "Exists"}], "there is nothing to add"


def test_kueue_admits_a_group() -> None:
    pods = [make_pod(settings(queue="team-{project}"), rank=rank) for rank in (0, 1)]
    for pod in pods:
        metadata = pod["metadata"]
        assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "team-prj-1"
        assert metadata["labels"]["kueue.x-k8s.io/pod-group-name"] == "weft-job-1-1"
        assert metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
        assert metadata["annotations"]["kueue.x-k8s.io/retriable-in-group"] == "false"
    assert "kueue" not in repr(make_pod())


def test_images_of_the_catalogue_come_from_the_repository() -> None:
    assert container(make_pod())["image"] == "registry.example/weft/python:3.11"
    own = spec(image="ghcr.io/me/mine@sha256:0123")
    assert container(make_pod(what=own))["image"] == "ghcr.io/me/mine@sha256:0123"
    assert objects.image_reference("registry.example/weft/", "python:3.11") == "registry.example/weft/python:3.11"
    assert container(make_pod(settings(image_pull_policy="Always")))["imagePullPolicy"] == "Always"


def test_an_image_of_the_users_own_gets_the_agent() -> None:
    pod = make_pod(what=spec(image="mine:1", gpus=2))
    [brings], learner = pod["spec"]["initContainers"], container(pod)
    assert brings["image"] == f"registry.example/weft/agent:{__version__}"
    assert learner["command"][:2] == ["python3", "-c"]
    compile(learner["command"][2], "command", "exec")
    shared = {mounted["name"] for mounted in brings["volumeMounts"]} & {
        mounted["name"] for mounted in learner["volumeMounts"]
    }
    assert shared == {"agent"}
    assert brings["resources"]["requests"] == brings["resources"]["limits"]
    assert brings["resources"]["limits"].keys() == {"cpu", "memory"}  # it would hold GPUs while it copies
    for other in (make_pod(), make_pod(settings(mount_agent=False), spec(image="mine:1"))):
        assert "initContainers" not in other["spec"]
        assert container(other)["command"] == ["python", "-m", "weft_trainer"]
        assert all(volume["name"] != "agent" for volume in other["spec"]["volumes"])


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "project", "filled"),
    [
        ("learners", "prj-1", "learners"),
        ("weft-{project}", "prj-4k9x2m7qd1ze", "weft-prj-4k9x2m7qd1ze"),
        ("{project}", "prj-1", "prj-1"),
    ],
)
def test_namespaces(template: str, project: str, filled: str) -> None:
    assert names.fill(template, project) == filled


def test_namespaces_of_any_projects_are_valid_and_distinct() -> None:
    projects = ["Vision", "vision", "vi_sion", "vi-sion", "é", "è", "p" * 80, "p" * 81, "-", "a.b"]
    filled = [names.fill("weft-{project}", project) for project in projects]
    assert len(set(filled)) == len(projects)
    assert all(len(name) <= 63 and re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) for name in filled)


@pytest.mark.parametrize("template", ["Learners", "a_b", "-x", "", "{project}_x", "x" * 64, "{Project}"])
def test_a_namespace_that_can_not_be_is_refused_with_the_settings(template: str) -> None:
    with pytest.raises(ValueError, match="at most 63 small letters"):
        KubernetesEngine("kube", settings(namespace=template), "weft", "ins")


def test_labels_of_any_text_are_valid_and_distinct() -> None:
    texts = ["ins-1", "", "a b", "a  b", "ä", "x" * 64, "x" * 65, "-a", "a/b", "a.b"]
    values = [names.label_value(text) for text in texts]
    assert len(set(values)) == len(texts)
    assert values[0] == "ins-1"
    assert all(
        len(value) <= 63 and re.fullmatch(r"([A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)?", value, re.A) for value in values
    )
