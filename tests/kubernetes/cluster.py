"""The real Kubernetes of the folder `kubernetes` of shared scripts: brought up, given images, broken, taken down.

Its README says what it is. The folder is `$WEFT_KUBERNETES_DIR`, else `../shared/kubernetes` beside the repository.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

import psutil
from kubernetes import client, config
from tests.processes import all_processes

REPOSITORY = Path(__file__).parents[2]
# Read at import, as the tests' own fixtures take WEFT_… out of the environment.
_GIVEN = {name: value for name, value in os.environ.items() if name.startswith("WEFT_KUBE")}
_FOLDER = Path(_GIVEN.get("WEFT_KUBERNETES_DIR") or REPOSITORY.parent / "shared" / "kubernetes")
_FLAGS = {
    # A lost node is noticed after 16 s instead of 40; tests wait for it, and depend on no time.
    "WEFT_KUBE_KCM_FLAGS": "--node-monitor-grace-period=16s",
    # Fair queues of requests took a sixth of an idle cluster's processor time.
    "WEFT_KUBE_APISERVER_FLAGS": "--enable-priority-and-fairness=false",
}
_GROUPS = {
    "clusterrolebindings": "apis/rbac.authorization.k8s.io/v1",
    "clusterroles": "apis/rbac.authorization.k8s.io/v1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
    "jobs": "apis/batch/v1",
    "networkpolicies": "apis/networking.k8s.io/v1",
    "workloads": "apis/kueue.x-k8s.io/v1beta1",
}
"""Of the kinds that are not of the core's group."""
_CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace"}
_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
MISSING = f"NOT RUN: no Kubernetes ({_FOLDER} is not there; WEFT_KUBERNETES_DIR names another folder)"
NOT_ROOT = "NOT RUN: no Kubernetes (the cluster's scripts want root)"


class Cluster:
    """One cluster a machine; a test run that finds it up leaves it up."""

    _fault: ClassVar[str] = ""
    """Why it did not come up."""

    def __init__(self, scripts: Path = _FOLDER, flags: Mapping[str, str] = _FLAGS) -> None:
        self.scripts = scripts
        self.home = Path(_GIVEN.get("WEFT_KUBE_HOME") or "/tmp/weft-kube")
        self._environment = {**os.environ, **flags, **_GIVEN, "WEFT_KUBE_HOME": str(self.home)}
        self._ours = False
        self._client: client.ApiClient | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    def api(self) -> client.ApiClient:
        """A client of its API server, with all rights."""
        configuration = client.Configuration()
        config.load_kube_config(  # type: ignore[no-untyped-call]
            str(self.kubeconfig), client_configuration=configuration
        )
        return client.ApiClient(configuration)

    @property
    def _kubectl(self) -> Path:
        return self.home / "bin" / "kubectl"

    @property
    def host_ip(self) -> str:
        """The address of this machine that pods reach."""
        return self._facts()["WEFT_KUBE_HOST_IP"]

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes that were up when `up` last ran."""
        return self._facts()["WEFT_KUBE_NODES"].split(",")

    def _facts(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in (self.home / "env").read_text().split())

    # --- life ---

    @property
    def is_up(self) -> bool:
        """Whether any part of it is."""
        return any(_is_alive(record) for record in (self.home / "run" / "pids").glob("[!.]*"))

    def up_without_nodes(self) -> None:
        """Start the control plane alone: every pod waits until somebody else adds nodes."""
        self._ours = True
        self._script("up", "--control-only", timeout=600)

    def up(self, nodes: int = 2) -> None:
        """Start what is missing or has died; also how a lost node or API server comes back. A cluster that died as a
        whole, say with its machine, is made anew: a node does not always come up on what another had half unpacked.
        Where none comes up, all tests that want it fail at once, with the reason of the first."""
        if Cluster._fault:
            raise RuntimeError(Cluster._fault)
        if self.is_up:
            self._script("up", "--nodes", str(nodes), timeout=600)
            for node in self.nodes:
                self._use_spec(node)
            return
        if (self.home / "run" / "pids").exists():
            self.down()
        self._ours, self._client = True, None
        for attempt in range(3):  # the script gives a server 90 s, and goes on where it was when it is run again
            try:
                self._script("up", "--nodes", str(nodes), timeout=600)
                return
            except RuntimeError as error:
                if attempt == 2:
                    Cluster._fault = str(error)
                    raise

    def down(self) -> None:
        self._script("down", timeout=300)

    def release(self) -> None:
        """Take it down if it was brought up here."""
        if self._ours:
            self.down()

    def pid(self, name: str) -> int:
        """Of etcd, apiserver, kcm, sched, node-N, containerd-N or kubelet-N."""
        path, deadline = self.home / "run" / "pids" / name, time.monotonic() + 60
        while not (text := path.read_text()):  # a node that starts a process anew empties the file before it writes
            assert time.monotonic() < deadline, f"{path} stays empty"
            time.sleep(0.02)
        return int(text)

    def processes_of(self, uid: str) -> list[psutil.Process]:
        """The processes of a pod, which this machine sees, too."""
        found = []
        for process in all_processes():
            with contextlib.suppress(OSError, psutil.Error):
                if f"pod{uid}" in Path(f"/proc/{process.pid}/cgroup").read_text() and process.exe() != "/pause":
                    found.append(process)
        return found

    def _script(self, name: str, *arguments: str, timeout: float) -> None:
        done = subprocess.run(
            [str(self.scripts / name), *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.scripts}/{name} {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}")

    # --- its API ---

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True, timeout: float = 300) -> str:
        """What kubectl prints. Raises AssertionError when it fails, unless ``check`` is false."""
        done = subprocess.run(
            [str(self._kubectl), "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def request(
        self, method: str, path: str, body: Any = None, form: str = "application/json", **query: str
    ) -> dict[str, Any] | None:
        """The API server's answer, None if there is no such thing. A hundred of these cost as much as one kubectl."""
        self._client = self._client or self.api()
        answer = self._client.rest_client.pool_manager.request(
            method,
            f"{self._client.configuration.host}/{path}?{urlencode(query)}",
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": form},
            timeout=300,
        )
        if answer.status == 404:
            return None
        assert answer.status < 300, f"{method} {path}: {answer.data.decode()}"
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        return self.request("GET", f"{_place(kind, namespace)}/{name}")

    def create(self, found: dict[str, Any], namespace: str = "") -> None:
        assert self.request("POST", _collection(found, namespace), found)

    def check(self, found: dict[str, Any], namespace: str) -> None:
        """See that the server would take an object whose every field it knows; nothing is made."""
        path = f"{_collection(found, namespace)}/{found['metadata']['name']}"
        options = {"dryRun": "All", "fieldManager": "tests", "force": "true"}
        assert self.request("PATCH", path, found, _APPLY, **options), f"the cluster knows no {found['kind']}"

    def patch(self, kind: str, name: str, change: dict[str, Any], namespace: str = "") -> None:
        """Merge a change into an object; None removes."""
        assert self.request("PATCH", f"{_place(kind, namespace)}/{name}", change, _MERGE), f"there is no {kind}/{name}"

    def label(self, node: str, **labels: str | None) -> None:
        """Set labels `weft.test/…` of a node, or remove those that are None."""
        self.patch("nodes", node, {"metadata": {"labels": {f"weft.test/{name}": to for name, to in labels.items()}}})

    def delete(self, kind: str, name: str, namespace: str = "", **options: str) -> None:
        """``gracePeriodSeconds="0"`` removes a pod at once."""
        gone = self.request("DELETE", f"{_place(kind, namespace)}/{name}", **options)
        assert gone, f"there is no {kind}/{name}"

    def items(self, kinds: str, namespace: str = "", selector: str = "") -> list[dict[str, Any]]:
        """Objects of some kinds (plurals, with commas) in a namespace, or in all."""
        found = []
        for kind in kinds.split(","):
            listed = self.request("GET", _place(kind, namespace), labelSelector=selector)
            assert listed, f"the cluster knows no {kind}"
            found += [{"kind": listed["kind"].removesuffix("List"), **item} for item in listed["items"]]
        return found

    def free_cpus(self) -> dict[str, float]:
        """By node that takes pods, what its pods have not asked for."""
        pods = self.pods()
        return {
            name: there - sum(asked_cpus(pod) for pod in pods if pod["spec"].get("nodeName") == name)
            for name, there in self.cpus().items()
        }

    def cpus(self) -> dict[str, float]:
        """By node, what its pods may ask for together."""
        return {node["metadata"]["name"]: _cpus(node["status"]["allocatable"]["cpu"]) for node in self.items("nodes")}

    def pods(self) -> list[dict[str, Any]]:
        """Everybody's, as of one moment."""
        return self.items("pods")

    def is_ready(self, node: str) -> bool:
        found = self.request("GET", f"api/v1/nodes/{node}")
        assert found, f"there is no {node}"
        return ("Ready", "True") in [(each["type"], each["status"]) for each in found["status"]["conditions"]]

    def proxy(self) -> subprocess.Popen[str]:
        """`kubectl proxy` at a port that its first line of output names."""
        command = [str(self._kubectl), "--kubeconfig", str(self.kubeconfig), "proxy", "--port=0"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace for the time of the block; all in it goes at once at its end."""
        self.request("POST", "api/v1/namespaces", {"metadata": {"name": name}})
        while not self.get("serviceaccounts", "default", name):  # until then the server takes no pod
            time.sleep(0.05)
        try:
            yield name
        finally:
            self.request("DELETE", f"api/v1/namespaces/{name}/pods", gracePeriodSeconds="0")
            self.request("DELETE", f"api/v1/namespaces/{name}")

    # --- images ---

    def image(self, name: str, *arguments: str) -> None:
        """Build an image and load it into every node that is up; ``arguments`` as the script's own help says."""
        with (self.home / "image.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._script("image", name, *arguments, timeout=1400)

    def lend(self, what: Path, place: str) -> None:
        """Have every container that starts from now on find a file or folder of this machine there, to read."""
        mount = {"destination": place, "type": "bind", "source": str(what), "options": ["rbind", "ro"]}
        for node in self.nodes:
            path = self._spec(node)
            spec = json.loads(path.read_text() if path.exists() else self._ctr(node, "oci", "spec"))
            if mount not in spec["mounts"]:
                spec["mounts"].append(mount)
                path.write_text(json.dumps(spec))
                self._use_spec(node, again=True)

    def _spec(self, node: str) -> Path:
        return self.home / "run" / node / "spec.json"

    def _use_spec(self, node: str, *, again: bool = False) -> None:
        """Have a node's containerd begin its containers' specs with ours, if there is one. It reads it when it starts,
        and the script that starts a node writes its settings anew."""
        settings, spec = self._spec(node).with_name("containerd.toml"), self._spec(node)
        text, runtime = settings.read_text(), '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
        is_used = "base_runtime_spec" in text
        if not spec.exists() or (is_used and not again):
            return
        if not is_used:
            settings.write_text(text.replace(runtime, f'{runtime}base_runtime_spec = "{spec}"\n'))
        name = node.replace("node", "containerd")
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)  # it is started again, and its containers run on
        deadline = time.monotonic() + 120
        while self.pid(name) == pid or not self._answers(node):
            assert time.monotonic() < deadline, f"the containerd of {node} does not come back"
            time.sleep(0.2)

    def _answers(self, node: str) -> bool:
        try:
            return bool(self._ctr(node, "version"))
        except subprocess.CalledProcessError:
            return False

    def load(self, archive: Path, images: Collection[str]) -> None:
        """Load an archive that an engine's `save` wrote into every node that lacks some of these names and ids."""
        for node in self.nodes:
            if not self._missing(node, images):
                continue
            self._ctr(node, "image", "import", str(archive), timeout=1400)
            deadline = time.monotonic() + 300
            while missing := self._missing(node, images):  # the kubelet's view follows
                assert time.monotonic() < deadline, f"{node} does not show {sorted(missing)}"
                time.sleep(0.2)

    def missing(self, images: Collection[str]) -> set[str]:
        """Those names and ids (`sha256:…`) of images that some node does not have."""
        return {image_name for node in self.nodes for image_name in self._missing(node, images)}

    def _missing(self, node: str, images: Collection[str]) -> set[str]:
        return set(images) - {line.split()[0] for line in self._ctr(node, "image", "ls").splitlines()}

    def has_image(self, name: str, mark: str) -> bool:
        """Whether every node has the image with this mark of its content (see :meth:`mark_image`)."""
        return all(
            f"weft.test.mark={mark}" in self._ctr(node, "image", "ls", f"name=={full(name)}") for node in self.nodes
        )

    def mark_image(self, name: str, mark: str) -> None:
        for node in self.nodes:
            self._ctr(node, "image", "label", full(name), f"weft.test.mark={mark}")

    def _ctr(self, node: str, *arguments: str, timeout: float = 300) -> str:
        socket = self.home / "run" / node / "containerd.sock"
        program = self.home / "debian" / "usr" / "bin" / "ctr"
        command = [str(program), "-a", str(socket), "-n", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True).stdout


def _is_alive(record: Path) -> bool:
    """Whether the process lives whose pid is recorded here; its start in clock ticks, beside it, tells it from a later
    process of that number."""
    try:
        started = int((record.parent / f".{record.name}.start").read_text())
        told = Path(f"/proc/{int(record.read_text())}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return told[0] not in "ZX" and int(told[19]) == started


def _place(kind: str, namespace: str) -> str:
    within = f"namespaces/{namespace}/" if namespace else ""
    return f"{_GROUPS.get(kind, 'api/v1')}/{within}{kind}"


def _collection(found: dict[str, Any], namespace: str) -> str:
    """The path to which an object like this is posted."""
    version, kind = found["apiVersion"], found["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    named = found["metadata"].get("namespace", namespace)
    within = "" if found["kind"] in _CLUSTER_WIDE else f"namespaces/{named}/"
    return f"{'apis' if '/' in version else 'api'}/{version}/{within}{plural}"


def _cpus(quantity: str) -> float:
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def asked_cpus(pod: dict[str, Any]) -> float:
    """CPUs that a pod which has not ended has asked for."""
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0.0
    each = [container.get("resources", {}).get("requests", {}) for container in pod["spec"]["containers"]]
    return sum(_cpus(requests.get("cpu", "0")) for requests in each)


def is_bygone(found: dict[str, Any]) -> bool:
    """Whether it is a pod that has ended and is deleted: only its object is left, and nothing holds it. The kubelet
    removes it when it comes to it, after 10 s or 40."""
    metadata = found["metadata"]
    ended = found["kind"] == "Pod" and found["status"].get("phase") in ("Succeeded", "Failed")
    return ended and "deletionTimestamp" in metadata and not metadata.get("finalizers")


def full(name: str) -> str:
    """An image's name as containerd keeps it."""
    first, slash, _ = name.partition("/")
    return name if slash and ("." in first or ":" in first) else f"docker.io/{'' if slash else 'library/'}{name}"


def find_cluster() -> Cluster | None:
    """The cluster, not yet up perhaps; None where its scripts are absent."""
    return Cluster() if (_FOLDER / "up").exists() else None
