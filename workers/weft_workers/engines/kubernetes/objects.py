"""An attempt's objects: a Secret that owns the rest, a NetworkPolicy, a bare Pod a learner. Pure."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft_core import __version__
from weft_core.catalogue import Catalogue
from weft_core.engine import Taint
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec
from weft_workers.engines.kubernetes import names, network

Json = dict[str, Any]

ROOT = "/weft"
"""The folder in which a learner may write, besides /tmp and /dev/shm. It is one volume because the cache's files are
linked, not copied."""
_CACHE = "/cache"  # where a claim for the cache is mounted
_AGENT = "/opt/weft/agent"
"""The agent's folder, in the image of that name and in every image into which it is mounted."""
_RUN_MOUNTED = (  # not by PYTHONPATH, which may be the image's own
    "import runpy, sys; sys.version_info >= (3, 9) or "
    "sys.exit('this image has Python %d.%d; a learner needs 3.9 or newer' % sys.version_info[:2]); "
    f"sys.path.insert(0, '{_AGENT}'); runpy.run_module('weft_trainer', run_name='__main__', alter_sys=True)"
)
_PATIENCE = 5
"""Seconds that a learner gets past its grace: its agent acts on the grace, the kubelet only if that fails."""


def secret(engine: str, spec: LaunchSpec) -> Json:
    """Holds the attempt's token, and owns the other objects, which are deleted with it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": spec.run_name,
            "labels": names.run_labels(engine, spec),
            "annotations": {**_annotations(spec), names.LEARNERS: str(spec.learners)},
        },
        "type": "Opaque",
        "stringData": {"token": spec.token},
    }


def egress(settings: KubernetesSettings, spec: LaunchSpec, nodes: Iterable[Json] = ()) -> network.Egress:
    """The addresses that the learners may reach: their peers, the API, their data stores, DNS, and those of the
    settings.

    Raises: EngineUnreachable, LaunchRefused: see :func:`network.egress`.
    """
    own_urls = (spec.api_url, *spec.own_endpoints)
    return network.egress(
        _own(spec), own_urls, spec.endpoints, settings.egress, nodes, settings.service_networks, dns=settings.dns
    )


def _own(spec: LaunchSpec) -> Json:
    return {"matchLabels": {names.INSTALLATION: names.label_value(spec.installation), names.RUN: spec.run_name}}


def policy(engine: str, spec: LaunchSpec, owner: Json, reached: network.Egress) -> Json:
    """Lets learners talk among themselves and to the allowed addresses only."""
    own = _own(spec)
    hosts = {"annotations": {names.HOSTS: json.dumps(reached.hosts)}} if reached.hosts else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": spec.run_name,
            "labels": names.run_labels(engine, spec),
            "ownerReferences": [reference(owner)],
            **hosts,
        },
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": network.ingress(own),
            "egress": reached.rules,
        },
    }


def hosts(policy: Json) -> dict[str, list[str]]:
    """The addresses that learners use for hosts, from their policy: it opens only these."""
    found: dict[str, list[str]] = json.loads((policy["metadata"].get("annotations") or {}).get(names.HOSTS, "{}"))
    return found


def namespace(name: str, spec: LaunchSpec) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/managed-by": "weft",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    }


def reference(owner: Json) -> Json:
    """An owner reference to an object as the server returned it."""
    return {
        "apiVersion": owner.get("apiVersion", "v1"),
        "kind": owner.get("kind", "Secret"),
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def image_reference(repository: str, image: str) -> str:
    """The reference to pull: images of the catalogue are in the installation's repository, others stay as they are."""
    return f"{repository.rstrip('/')}/{image}" if _in_catalogue(image) else image


def _in_catalogue(image: str) -> bool:
    return Catalogue.load().get(image) is not None


def pod(
    engine: str,
    settings: KubernetesSettings,
    repository: str,
    spec: LaunchSpec,
    rank: int,
    owner: Json,
    gpu_types: Sequence[str] = (),
    hosts: Mapping[str, Sequence[str]] | None = None,
) -> Json:
    """A learner.

    Args:
        owner: the attempt's Secret, as the server returned it.
        gpu_types: values of the GPU type's label that will do; none: any.
        hosts: addresses that the learner uses for names, instead of asking DNS.
    """
    aliases = [{"ip": ip, "hostnames": [host]} for host, addresses in (hosts or {}).items() for ip in addresses]
    labels = {**names.run_labels(engine, spec), names.LEARNER: str(rank + 1)}
    annotations = _annotations(spec)
    if settings.queue:
        labels |= {
            names.QUEUE_LABEL: names.fill(settings.queue, spec.project_id),
            "kueue.x-k8s.io/pod-group-name": spec.run_name,
        }
        annotations |= {
            "kueue.x-k8s.io/pod-group-total-count": str(spec.learners),
            # Weft never replaces a pod of a group: when all have ended, so has the group, and its quota is free.
            "kueue.x-k8s.io/retriable-in-group": "false",
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod_name(spec.run_name, rank),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [reference(owner)],
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **({"hostAliases": aliases} if aliases else {}),
            "terminationGracePeriodSeconds": math.ceil(spec.grace) + _PATIENCE,
            "securityContext": _pod_security(settings),
            **_placement(settings, spec, gpu_types),
            **(
                {"initContainers": [_agent_container(settings, repository, spec)]}
                if _mounts_agent(settings, spec)
                else {}
            ),
            "containers": [_container(settings, repository, spec, rank)],
            "volumes": _volumes(settings, spec),
        },
    }


def _annotations(spec: LaunchSpec) -> dict[str, str]:
    """For people: names, which no label may hold."""
    named = {f"{names.PREFIX}job-name": spec.job_name, f"{names.PREFIX}project-name": spec.project}
    return {name: value for name, value in named.items() if value}


# --- the container -----------------------------------------------------------------------------------------------


def _container(settings: KubernetesSettings, repository: str, spec: LaunchSpec, rank: int) -> Json:
    mounts: list[Json] = [
        {"name": "work", "mountPath": ROOT},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    if settings.cache_claim:
        # A project's learners could write what another's would read.
        mounts.append({"name": "cache", "mountPath": _CACHE, "subPath": spec.project_id})
    command = ["python", "-m", "weft_trainer"]
    if _mounts_agent(settings, spec):
        mounts.append({"name": "agent", "mountPath": _AGENT, "readOnly": True})
        command = ["python3", "-c", _RUN_MOUNTED]
    amounts = _amounts(settings, spec)
    return {
        "name": names.CONTAINER,
        "image": image_reference(repository, spec.image),
        "imagePullPolicy": settings.image_pull_policy,
        "command": command,
        "workingDir": ROOT,
        "env": _environment(settings, spec, rank),
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": _container_security(),
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # what the agent said last; the user's output is not here
    }


def _mounts_agent(settings: KubernetesSettings, spec: LaunchSpec) -> bool:
    return settings.mount_agent and not _in_catalogue(spec.image)


def _agent_container(settings: KubernetesSettings, repository: str, spec: LaunchSpec) -> Json:
    """Brings the agent to an image that has nothing but Python. No more resources than the learner's,
    and the same requests as limits, or the pod's quality of service would be a lower one."""
    amounts = {name: each for name, each in _amounts(settings, spec).items() if name in ("cpu", "memory")}
    return {
        "name": "agent",
        "image": f"{repository.rstrip('/')}/agent:{__version__}",
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["cp", "-R", f"{_AGENT}/.", "/agent"],
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": _container_security(),
        "volumeMounts": [{"name": "agent", "mountPath": "/agent"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _container_security() -> Json:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _environment(settings: KubernetesSettings, spec: LaunchSpec, rank: int) -> list[Json]:
    plain = {
        "WEFT_API_URL": spec.api_url,
        "WEFT_RANK": str(rank),
        "WEFT_NUM_LEARNERS": str(spec.learners),
        "WEFT_WORKDIR": f"{ROOT}/work",
        "WEFT_CACHE_DIR": _CACHE if settings.cache_claim else f"{ROOT}/cache",
        **({} if settings.cache_size is None else {"WEFT_CACHE_SIZE": str(settings.cache_size)}),
        "WEFT_GRACE_SECONDS": f"{spec.grace:g}",
        "HOME": ROOT,
        "TMPDIR": "/tmp",  # noqa: S108
        "USER": "weft",  # the user id need not be one that the image knows: getpass.getuser() and others fail then
        "LOGNAME": "weft",
        "OMP_NUM_THREADS": str(max(1, int(spec.resources.cpus))),
        **({"TRACEPARENT": spec.traceparent} if spec.traceparent else {}),
    }
    return [
        # Kubernetes expands $(NAME) in values, and makes $$ a $.
        *({"name": name, "value": value.replace("$", "$$")} for name, value in plain.items()),
        {
            "name": "WEFT_ATTEMPT_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": spec.run_name, "key": "token"}},
        },
        {"name": "WEFT_ADVERTISE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]


def _amounts(settings: KubernetesSettings, spec: LaunchSpec) -> dict[str, str]:
    each = spec.resources
    amounts = {"cpu": f"{math.ceil(each.cpus * 1000 - 1e-6)}m", "memory": str(each.memory)}
    if each.gpus:
        amounts[settings.gpu_resource] = str(each.gpus)
    if each.storage is not None:
        amounts["ephemeral-storage"] = str(each.storage)
    return amounts | {name: _quantity(number) for name, number in each.extra.items() if number}


def _quantity(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def _volumes(settings: KubernetesSettings, spec: LaunchSpec) -> list[Json]:
    each = spec.resources
    limit = {} if each.storage is None else {"sizeLimit": str(each.storage)}
    shared = settings.shared_memory if settings.shared_memory is not None else each.memory // 2
    volumes: list[Json] = [
        {"name": "work", "emptyDir": dict(limit)},
        {"name": "tmp", "emptyDir": dict(limit)},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shared)}},
    ]
    if _mounts_agent(settings, spec):
        volumes.append({"name": "agent", "emptyDir": {}})
    if settings.cache_claim:
        volumes.append({"name": "cache", "persistentVolumeClaim": {"claimName": settings.cache_claim}})
    return volumes


def _pod_security(settings: KubernetesSettings) -> Json:
    """The settings that the pod security standard 'restricted' requires, and the user."""
    context: Json = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if (user := settings.run_as_user) is not None:
        context |= {
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",  # a cache has many files
        }
    return context


# --- where it may run --------------------------------------------------------------------------------------------


def _placement(settings: KubernetesSettings, spec: LaunchSpec, gpu_types: Sequence[str]) -> Json:
    """The engine's defaults, with the profile's values over them."""
    wishes = spec.placement
    tolerations = [
        toleration.model_dump(exclude_defaults=True) for toleration in (*settings.tolerations, *wishes.tolerations)
    ]
    # A node that the cluster hears nothing of may train on: Weft judges by the learner's own heartbeat.
    for name in ("unreachable", "not-ready"):
        away = Taint(f"node.kubernetes.io/{name}", effect="NoExecute")
        if not away.tolerated((*settings.tolerations, *wishes.tolerations)):
            tolerations.append({"key": away.key, "operator": "Exists", "effect": away.effect})
    affinity = copy.deepcopy({**settings.affinity, **wishes.affinity})
    if gpu_types and spec.resources.gpus:
        wish = {"key": settings.gpu_type_label, "operator": "In", "values": list(gpu_types)}
        affinity = _with_conditions(affinity, "matchExpressions", [wish])
    # Kubernetes takes one name for each condition.
    away_from = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in wishes.avoid]
    if away_from:
        affinity = _with_conditions(affinity, "matchFields", away_from)
    pulls = dict.fromkeys((*settings.image_pull_secrets, *wishes.image_pull_secrets))
    found = {
        "nodeSelector": {**settings.node_selector, **wishes.node_selector},
        "tolerations": tolerations,
        "affinity": affinity,
        "priorityClassName": wishes.priority_class or settings.priority_class,
        "imagePullSecrets": [{"name": name} for name in pulls],
    }
    return {name: value for name, value in found.items() if value}


def _with_conditions(affinity: Mapping[str, Any], kind: str, conditions: Sequence[Json]) -> Json:
    """An affinity that asks for these conditions besides all else: each of its alternatives gets them.

    Args:
        kind: ``matchExpressions`` for labels of nodes, or ``matchFields``.
    """
    changed = copy.deepcopy(dict(affinity))
    node = changed.setdefault("nodeAffinity", {})
    required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, kind: [*term.get(kind, []), *conditions]} for term in terms]
    return changed
