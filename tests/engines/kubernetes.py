"""The Kubernetes engine on the real test cluster: learners are pods, and a proxy is before the API server."""

from __future__ import annotations

import base64
import os
import ssl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client
from tests.engines.bench import OURS, Bench, NotHere
from tests.engines.proxy import Proxy
from tests.kubernetes import images
from tests.kubernetes.cluster import MISSING, NOT_ROOT, Cluster, find_cluster

from weft_core.engine import Capacity, Engine
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import Resources
from weft_workers.engines.kubernetes import KubernetesEngine

_REPOSITORY = "weft"


class KubernetesBench(Bench):
    kind = "kubernetes"
    image = images.PYTHON
    no_image = "weft.test/nothing-of-this-name:1.0"
    proxy: Proxy

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, slot: str) -> None:
        self.host = cluster.host_ip
        self._namespace, self._slot = namespace, slot
        api = cluster.api()
        version = client.VersionApi(api).get_code()
        if (int(version.major), int(version.minor.rstrip("+"))) < (1, 22):
            self.lacks = {"shortening": f"a kubelet before 1.22 keeps the first grace; this is {version.git_version}"}
        self._cluster, self._core = cluster, client.CoreV1Api(api)
        self.proxy, self._kubeconfig = _proxied(cluster.kubeconfig, folder)
        self._engines: list[KubernetesEngine] = []

    def engine(self, installation: str = OURS, timeout: float = 20.0) -> Engine:
        settings = KubernetesSettings(kubeconfig=self._kubeconfig, namespace=self._namespace, timeout=timeout)
        made = KubernetesEngine("kubernetes", settings, _REPOSITORY, installation)
        self._engines.append(made)
        return made

    def rest(self) -> None:
        """An engine watches for as long as its process lives; one that is asked again begins anew."""
        for engine in self._engines:
            engine.close()

    def things(self, *run_names: str) -> list[str]:
        kinds = "pods,secrets,services,configmaps,networkpolicies"
        return [
            f"{item['kind']}/{item['metadata']['name']}"
            for item in self._cluster.items(kinds, self._namespace)
            if any(run_name in item["metadata"]["name"] for run_name in run_names)
        ]

    def remove_learner(self, run_name: str, rank: int) -> None:
        """Its pod is deleted at once, past every grace."""
        pods = self._core.list_namespaced_pod(self._namespace, label_selector=f"weft.dev/learner={rank + 1}").items
        names = [pod.metadata.name for pod in pods if pod.metadata and pod.metadata.name]
        [name] = [name for name in names if run_name in name]
        self._core.delete_namespaced_pod(name, self._namespace, grace_period_seconds=0)

    def late(self) -> Mapping[str, Any]:
        """No node has so much."""
        return {"resources": Resources(cpus=64, gpus=0, memory=self.each.memory)}

    def scarce(self) -> Resources:
        return Resources(self.each.cpus, 0, self.each.memory, extra={self._slot: 1})

    def scarce_use(self, capacity: Capacity) -> float:
        return sum(node.busy.extra.get(self._slot, 0.0) for node in capacity.nodes)

    @contextmanager
    def slot(self, node: str) -> Iterator[None]:
        """An extended resource of which this node has one, and no other node any."""
        path = f"/status/capacity/{self._slot.replace('/', '~1')}"
        self._core.patch_node_status(node, [{"op": "add", "path": path, "value": "1"}])
        try:
            yield
        finally:
            self._core.patch_node_status(node, [{"op": "remove", "path": path}])


def _proxied(kubeconfig: Path, folder: Path) -> tuple[Proxy, Path]:
    """A proxy that is the cluster's administrator, and a kubeconfig that leads to it."""
    document = yaml.safe_load(kubeconfig.read_text())
    [cluster], [user] = document["clusters"], document["users"]
    certificate = folder / "client.pem"
    certificate.touch(mode=0o600)
    certificate.write_bytes(
        b"\n".join(base64.b64decode(user["user"][f"client-{part}-data"]) for part in ("certificate", "key"))
    )
    server = cluster["cluster"]
    trust = ssl.create_default_context(cadata=base64.b64decode(server["certificate-authority-data"]).decode())
    trust.load_cert_chain(certificate)
    proxy = Proxy(server["server"], trust)
    cluster["cluster"] = {"server": proxy.url}
    user["user"] = {}
    written = folder / "kubeconfig"
    written.write_text(yaml.safe_dump(document))
    return proxy, written


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    cluster = find_cluster()
    if cluster is None:
        raise NotHere(MISSING)
    if os.geteuid() != 0:
        raise NotHere(NOT_ROOT)
    cluster.up(nodes=2)
    unique = uuid.uuid4().hex[:8]
    with ExitStack() as stack:
        stack.callback(cluster.release)
        images.load(cluster, images.PYTHON, _REPOSITORY)
        images.load_agent(cluster, _REPOSITORY)
        namespace = stack.enter_context(cluster.namespace(f"weft-suite-{unique}"))
        bench = KubernetesBench(cluster, namespace, folder, f"weft.test/slot-{unique}")
        stack.callback(bench.proxy.close)
        stack.enter_context(bench.slot(cluster.nodes[-1]))
        yield bench
