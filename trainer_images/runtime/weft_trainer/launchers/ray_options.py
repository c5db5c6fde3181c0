"""The options of one Ray node of the job's cluster, and the ``ray start`` that starts the node with them."""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_OBJECT_STORE_SHARE = 0.3  # Ray's own
_SMALLEST_STORE = 80 << 20  # Ray refuses less than 75 MiB
START_SECONDS = 600.0
"""For `ray start` as a whole."""
START_HOOK = f"{__name__}.start_hook"
_PORT_FLAG = "dashboard_agent_listen_port"


@dataclass(frozen=True)
class NodeOptions:
    rank: int
    learners: int
    address: str
    head: str
    gcs_port: int
    gate_port: int
    client_port: int
    dashboard_port: int
    cpus: int
    gpus: int
    memory: int | None
    """Bytes of the learner; None: Ray looks for itself."""
    unset: Sequence[str] = ()
    """Environment variables that Ray's processes shall not have."""

    @property
    def is_head(self) -> bool:
        return self.rank == 0


def start_hook(ray_params: object, _head: bool) -> None:
    """Called by `ray start` (RAY_START_HOOK): no Ray Client server, a process of 90 MB for drivers from outside.

    And more patience than Ray's own, as a dozen processes start, on perhaps one busy CPU: `ray start` waits for its
    node as long as the raylet lives, not 30 s, and the raylet does not wait for the dashboard agent's port.
    """
    del os.environ["RAY_START_HOOK"]
    params: Any = ray_params
    params.ray_client_server_port = None
    services: Any = importlib.import_module("ray._private.services")
    services.get_node = _patient(services.get_node, _raylet_runs)
    services.start_ray_process = _telling_the_port(services.start_ray_process, params.dashboard_agent_listen_port)


def _telling_the_port(start: Callable[..., T], port: int) -> Callable[..., T]:
    """``start``, a function that starts one of Ray's servers, changed to give a raylet the dashboard agent's HTTP port.

    `ray start` tells the raylet the agents' other ports, but not this one (Ray 2.60). The raylet then waits 15 s for a
    file with the port, and crashes without it: "Check failed: … Timed out waiting for file".
    """

    def started(command: Sequence[str], *arguments: object, **options: object) -> T:
        if Path(command[0]).name == "raylet" and _has_flag(Path(command[0]), _PORT_FLAG):
            command = [*command, f"--{_PORT_FLAG}={port}"]
        return start(command, *arguments, **options)

    return started


def _has_flag(raylet: Path, flag: str) -> bool:
    """Whether this raylet has a flag: one that it does not know would end it."""
    with raylet.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as program:
        return program.find(f"FLAGS_{flag}".encode()) >= 0


def _patient(ask: Callable[..., T], may_come: Callable[[], bool]) -> Callable[..., T]:
    """``ask`` again while it raises RuntimeError, which says here that the node has not registered yet."""

    def ask_on(*arguments: object) -> T:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                return ask(*arguments)
            except RuntimeError:
                if not may_come() or time.monotonic() > end:
                    raise
                time.sleep(0.2)

    return ask_on


def _raylet_runs() -> bool:
    """Whether the raylet that this process has started is there."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.name() == "raylet" and child.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


AGENT_PORTS = ("dashboard-agent-grpc", "dashboard-agent-listen", "metrics-export", "runtime-env-agent")
"""The ports of the node's two agents. A raylet that does not know them waits 15 s for each agent to start, and then
ends. It gets the second port from :func:`start_hook`."""


def start_command(
    options: NodeOptions, folder: Path, object_store_bytes: int | None, agent_ports: Sequence[int]
) -> list[str]:
    """``ray start`` with nothing left to its defaults that two nodes on one machine would fight for: every port is one
    that this learner has reserved, or 0, which is a free one.

    Args:
        options: of the node.
        folder: for Ray's own files.
        object_store_bytes: None: Ray decides.
        agent_ports: free ports, one for each of :data:`AGENT_PORTS`.
    """
    # The program's Python, which the PATH names: Ray starts its workers with that of `ray start`.
    command = ["python", "-m", "ray.scripts.scripts", "start", "--block"]
    command += ["--log-style=record", "--log-color=false"]
    command += [f"--temp-dir={folder}", f"--object-spilling-directory={spill_folder(folder)}"]
    command += [f"--node-ip-address={options.address}", f"--node-name=learner-{options.rank + 1}"]
    command += [f"--num-cpus={options.cpus}", f"--num-gpus={options.gpus}"]
    if object_store_bytes is not None:
        command.append(f"--object-store-memory={object_store_bytes}")
        if options.memory is not None:
            command.append(f"--memory={max(options.memory - object_store_bytes, 0)}")
    command += [f"--{name}-port=0" for name in ("node-manager", "object-manager", "min-worker", "max-worker")]
    command += [f"--{name}-port={port}" for name, port in zip(AGENT_PORTS, agent_ports, strict=True)]
    if options.is_head:
        command += ["--head", f"--port={options.gcs_port}", f"--ray-client-server-port={options.client_port}"]
        command += ["--include-dashboard=true", f"--dashboard-host={options.address}"]
        command.append(f"--dashboard-port={options.dashboard_port}")
        command.append("--disable-usage-stats")
    else:
        head = f"[{options.head}]" if ":" in options.head else options.head
        command.append(f"--address={head}:{options.gcs_port}")
    return command


def spill_folder(folder: Path) -> Path:
    """Objects that don't fit into memory go where the learner's own files are, rather than into /tmp."""
    work = os.environ.get("MODEL_DIR")
    return Path(work).parent / "ray" if work else folder / "spill"


def object_store(memory: int | None) -> int | None:
    """Bytes for Ray's objects: the share of the learner's memory that Ray itself would take of a machine's, and no more
    than what is free in /dev/shm, where they are kept (a container's may be small; Ray would use a disk then)."""
    if memory is None:
        return None
    wanted = max(int(memory * _OBJECT_STORE_SHARE), _SMALLEST_STORE)
    try:
        free = shutil.disk_usage("/dev/shm").free * 9 // 10  # noqa: S108
    except OSError:
        return wanted
    return max(min(wanted, free), _SMALLEST_STORE)
