"""The chart, installed by Helm on the test cluster, and the ways to what it installed.

The cluster is an old one without DNS: servers are reached by addresses, and what it does not know is switched off.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.deploy.chart import CHART, HelmError, helm
from tests.deploy.forward import Forward
from tests.kubernetes.cluster import Cluster

import weft

SMALL = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}


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
                *("--kubeconfig", str(self.kube.kubeconfig), "--wait", "--timeout", "600s"),
                stdin=yaml.safe_dump(self.values),
                timeout=660,
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
        there = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(there, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def reach_api(self) -> None:
        """Lead the address that learners and this test know to an API pod: there is no kube-proxy."""
        self.api.target = (self.pods("api")[-1]["status"]["podIP"], 8080)

    def ask(self, path: str, token: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.get(f"http://{self.api.address}{path}", headers=headers, timeout=300)

    def secret(self, name: str) -> dict[str, str]:
        (found,) = [item for item in self.kube.items("secrets", self.namespace) if item["metadata"]["name"] == name]
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def can(self, account: str, verb: str, what: str, namespace: str) -> bool:
        groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{self.namespace}"]
        resource, _, part = what.partition("/")
        asked = {"verb": verb, "resource": resource, "subresource": part, "namespace": namespace}
        if resource == "rolebindings":
            asked["group"] = "rbac.authorization.k8s.io"
        user = f"system:serviceaccount:{self.namespace}:{account}"
        review = {"spec": {"user": user, "groups": groups, "resourceAttributes": asked}}
        answer = self.kube.request("POST", "apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer and answer["status"]["allowed"])


def eventually(condition: Callable[[], Any], what: str, seconds: float = 600) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def for_old_clusters(folder: Path) -> Path:
    """The chart without its lower bound of Kubernetes' version."""
    chart = folder / "weft"
    shutil.copytree(CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(re.sub(r"(?m)^kubeVersion:.*\n", "", text))
    return chart


def left(kube: Cluster, namespace: str) -> set[str]:
    """Everything in a namespace, but what Kubernetes itself puts into each, and what only tells of the past."""
    kinds = kube.kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name").split()
    kinds = [kind for kind in kinds if kind.partition(".")[0] not in ("events", "endpoints", "endpointslices")]
    found = json.loads(kube.kubectl("get", ",".join(kinds), "-n", namespace, "-o", "json"))["items"]
    named = {
        f"{resource['kind']}/{resource['metadata']['name']}"
        for resource in found
        if "deletionTimestamp" not in resource["metadata"]
    }
    own = ("ServiceAccount/default", "Secret/default-token-", "ConfigMap/kube-root-ca.crt")
    return {name for name in named if not name.startswith(own)}
