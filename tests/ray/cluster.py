"""A real Ray cluster on this machine, for tests: processes of their own, with a token, all of them gone at the end.

Needs no Ray in the tests' own environment. ``WEFT_TEST_RAY`` names the Python of one that has it; default: the
catalogue's image ``ray``, which is built on first use.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.servers import free_port

from weft_core.catalogue import Catalogue
from weft_trainer.launchers.ray_options import AGENT_PORTS
from weft_workers.environments import EnvironmentBuilder

_MARK = "TEST_RAY_NODE"  # in the environment of all processes of a node, the learners' too
_FAKE_HEAD = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"  # Ray's name for it
_PATIENCE = 300.0  # a busy machine needs minutes for a node
_ENVIRONMENTS = os.environ.get("WEFT_ENVIRONMENTS_DIR", str(Path.home() / ".cache/weft/environments"))


def ray_python() -> Path:
    """The Python of an environment that has Ray; takes minutes where it must be built first."""
    if given := os.environ.get("WEFT_TEST_RAY"):
        return Path(given)
    image = next(candidate for candidate in Catalogue.load().images if candidate.name == "ray")
    return EnvironmentBuilder(Path(_ENVIRONMENTS)).build(image.reference).python


class RayNode:
    """One raylet with all that it starts; the head also has the GCS and the dashboard."""

    def __init__(self, cluster: str, name: str) -> None:
        self.name = name
        self.mark = f"{_MARK}={cluster}-{name}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        name, _, value = self.mark.partition("=")
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                env={**env, name: value},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pids(self) -> list[int]:
        """All processes of the node: Ray's, actors, learners, whatever they have started."""
        return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if self._is_of(pid)]

    def raylet(self) -> int:
        return next(pid for pid in self.pids() if os.readlink(f"/proc/{pid}/exe").endswith("/raylet/raylet"))

    def kill(self) -> None:
        """As if its machine were gone: everything on it dies at once."""
        deadline = time.monotonic() + _PATIENCE
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self._process is not None:
                self._process.wait()
            assert time.monotonic() < deadline, f"processes of {self.name} can't be killed: {pids}"
            time.sleep(0.02)

    def _is_of(self, pid: int) -> bool:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
            return self.mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False


class RayCluster:
    """A head and the nodes that are added; a context manager.

    Args:
        cpus: of the head; 0 is fine.
        memory: bytes of the head that learners may reserve.
        token: False: a Ray that lets in everybody.
        host: where its dashboard listens.
        autoscaling: ``available_node_types`` of a cluster configuration: Ray's autoscaler adds such nodes, all on this
            machine, and takes them away when they were idle for some seconds.
    """

    def __init__(
        self,
        python: Path | None = None,
        *,
        cpus: float = 2,
        memory: int = 4 << 30,
        resources: Mapping[str, float] | None = None,
        token: bool = True,
        host: str = "127.0.0.1",
        autoscaling: Mapping[str, Any] | None = None,
    ) -> None:
        self.python = python or ray_python()
        self.token = secrets.token_hex(20) if token else ""
        self._id = secrets.token_hex(4)
        self._host = host
        self._gcs_port, self._port = free_port(), free_port()
        # Short: Ray makes unix sockets some 70 characters further down.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.head = RayNode(self._id, "head")
        self.nodes: list[RayNode] = []
        """Those that were added."""
        self._autoscaling = autoscaling
        self._head_arguments = self._share("head", cpus, memory, resources or {})
        self._made = 0

    # --- as a cluster ---

    @property
    def address(self) -> str:
        """URL of the dashboard."""
        return f"http://{self._host}:{self._port}"

    @property
    def gcs_address(self) -> str:
        """For ``ray.init(address=…)`` on this machine."""
        return f"127.0.0.1:{self._gcs_port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of Ray's processes; also for `ray` commands and drivers of a test's own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON", "WEFT_"))}
        env = {
            **kept,
            "PATH": f"{self.python.parent}:{kept.get('PATH', os.defpath)}",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # nodes whose head is gone end after 5 s, not after 60
            # Learn quickly of a killed raylet, with no less patience for a slow one.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "500",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            # A dozen processes start on what a busy machine has left.
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{_PATIENCE:.0f}",
            "RAY_agent_register_timeout_ms": f"{_PATIENCE * 1000:.0f}",
            "RAY_START_HOOK": "ray_start_hook.prepare",
            "PYTHONPATH": str(Path(__file__).parent / "provider"),
            # What these processes leave in the environment would hide modules that the catalogue's `imports` lack.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if self.token:
            return env | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        return env | {"RAY_AUTH_MODE": "disabled"}  # a token in the home folder would switch it on

    def start(self) -> RayCluster:
        try:
            self._start_head()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all of it, and see that nothing is left."""
        for node in (*self.nodes, self.head):
            node.kill()
        self.nodes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> RayCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- nodes ---

    def add_node(self, cpus: float = 2, memory: int = 4 << 30, resources: Mapping[str, float] | None = None) -> RayNode:
        """A further node, once it has joined."""
        self._made += 1
        node = RayNode(self._id, f"node-{self._made}")
        self.nodes.append(node)
        address = f"--address={self.gcs_address}"
        argv = [*self._ray("start"), "--block", address, *self._share(node.name, cpus, memory, resources or {})]
        self._start_node(node, argv, self.env)
        return node

    def remove_node(self, node: RayNode) -> None:
        """Its machine is gone, and the cluster has noticed."""
        node.kill()
        self.nodes.remove(node)
        self._wait(lambda: node.name not in self.node_names(), f"{node.name} to be missed")

    def node_names(self) -> set[str]:
        """Of the living ones."""
        nodes = self.get("/api/v0/nodes?detail=1&limit=1000")["data"]["result"]["result"]
        return {node["node_name"] for node in nodes if node["state"] == "ALIVE"}

    def kill_head(self) -> None:
        """As if its machine were gone; the nodes notice by and by."""
        self.head.kill()

    def restart_head(self) -> None:
        """A new head at the old addresses; it knows nothing of the old one, as there is no GCS fault tolerance."""
        self.head.kill()
        self._start_head()

    # --- past the engine ---

    def get(self, path: str, method: str = "GET") -> Any:
        """An answer of its HTTP API. Raises: OSError."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with urlopen(Request(self.address + path, headers=headers, method=method), timeout=30) as answer:
            return json.load(answer)

    def jobs(self) -> dict[str, Any]:
        """By submission id."""
        return {job["submission_id"]: job for job in self.get("/api/jobs/") if job["submission_id"]}

    def actors(self, run_name: str) -> dict[int, Any]:
        """Living ones of a gang's learners, by rank."""
        found = self._living_actors(run_name)
        return {int(name.rpartition("-")[2]): actor for name, actor in found.items()}

    def supervisors(self, run_name: str) -> dict[str, Any]:
        """Living actors of Ray's own that look after the jobs of runs, by the run's name."""
        prefix = "_ray_internal_job_actor_"
        return {name.removeprefix(prefix): actor for name, actor in self._living_actors(prefix + run_name).items()}

    def _living_actors(self, prefix: str) -> dict[str, Any]:
        found = self.get("/api/v0/actors?detail=1&limit=10000")["data"]["result"]["result"]
        return {
            actor["name"]: actor for actor in found if actor["state"] == "ALIVE" and actor["name"].startswith(prefix)
        }

    def run_driver(self, script: str) -> subprocess.Popen[bytes]:
        """A Python program of somebody else's on the cluster; ends with the head at the latest."""
        name, _, value = self.head.mark.partition("=")
        env = {**self.env, name: value, "RAY_ADDRESS": self.gcs_address}
        return subprocess.Popen([self.python, "-c", script], env=env, stdout=subprocess.PIPE, start_new_session=True)

    # --- how it is made ---

    def _start_head(self) -> None:
        argv = [
            *self._ray("start"),
            "--head",
            "--block",
            f"--port={self._gcs_port}",
            "--include-dashboard=true",
            f"--dashboard-host={self._host}",
            f"--dashboard-port={self._port}",
            f"--temp-dir={self.folder}",
            f"--ray-client-server-port={free_port()}",
            *self._head_arguments,
        ]
        env = self.env
        if self._autoscaling is not None:
            path = self.folder / "autoscaling.json"
            path.write_text(json.dumps(self._autoscaler(self._autoscaling)))
            argv.append(f"--autoscaling-config={path}")
            env |= {
                "RAY_FAKE_CLUSTER": "1",
                "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _FAKE_HEAD,
            }
        self._start_node(self.head, argv, env)

    def _start_node(self, node: RayNode, argv: list[str], env: Mapping[str, str]) -> None:
        log = self.folder / f"{node.name}.log"

        ports: dict[str, int] = {}

        def start() -> None:
            # As launcher `ray` does: a raylet that has to find its agents' ports out gives up after 15 s.
            ports.update({name: free_port() for name in AGENT_PORTS})
            node.start([*argv, *(f"--{name}-port={port}" for name, port in ports.items())], env, log)

        def joined() -> bool:
            if not node.alive:  # Ray gives up where a busy machine takes too long
                node.kill()
                start()
            if node.name not in self.node_names():
                return False
            socket.create_connection(("127.0.0.1", ports["dashboard-agent-listen"])).close()  # through it jobs come in
            return True

        start()

        self._wait(joined, f"{node.name} to start", log)

    def _ray(self, command: str) -> list[str]:
        return [str(self.python), "-m", "ray.scripts.scripts", command]

    @staticmethod
    def _share(name: str, cpus: float, memory: int, resources: Mapping[str, float]) -> list[str]:
        return [
            f"--node-name={name}",
            f"--num-cpus={cpus:g}",
            "--num-gpus=0",
            f"--memory={memory}",
            f"--object-store-memory={80 << 20}",
            f"--resources={json.dumps(dict(resources))}",
            "--min-worker-port=0",
            "--max-worker-port=0",
            "--node-ip-address=127.0.0.1",
            "--disable-usage-stats",
        ]

    def _autoscaler(self, types: Mapping[str, Any]) -> dict[str, Any]:
        head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
        phases = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
        return {
            "auth": {},
            "docker": {},
            "file_mounts": {},
            "cluster_synced_files": [],
            **{f"{phase}_commands": [] for phase in phases},
            "cluster_name": "tests",
            "max_workers": 8,
            "provider": {
                "type": "external",
                "module": "growing.Provider",
                "gcs_address": self.gcs_address,
                "launch_multiple": True,
                "use_node_id_as_ip": True,
            },
            "available_node_types": {**types, "ray.head.default": head},
            "head_node_type": "ray.head.default",
            "upscaling_speed": 10.0,
            "idle_timeout_minutes": 0.05,
        }

    def _wait(self, condition: Callable[[], bool], what: str, log: Path | None = None) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            with suppress(OSError, HTTPError, KeyError, TypeError):
                if condition():
                    return
            if time.monotonic() > deadline:
                said = log.read_text()[-3000:] if log else ""
                raise AssertionError(f"waited {_PATIENCE:g} s for {what} {said}")
            time.sleep(0.1)


def _die_with_parent() -> None:
    """Ray's processes end when `ray start --block` does, and that with pytest, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)


if __name__ == "__main__":  # a cluster by hand: python -m tests.ray.cluster [SECONDS]
    with RayCluster() as cluster:
        print(cluster.address, cluster.token, cluster.gcs_address, flush=True)
        time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 600)
