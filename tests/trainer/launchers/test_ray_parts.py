"""Launcher ``ray`` in parts: its plan, its gate, its folders. The whole of it runs in test_ray_launcher."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.trainer.agents import spec

from weft_trainer.config import derive_secret
from weft_trainer.errors import TrainerError
from weft_trainer.folders import Folders
from weft_trainer.launchers import find_launcher, ray_folder, ray_node, ray_options
from weft_trainer.launchers.ray_folder import session_folder, sweep
from weft_trainer.launchers.ray_gate import Gate, GateClient, GateClosed
from weft_trainer.launchers.ray_options import NodeOptions, object_store, start_command
from weft_trainer.program.environment import build_environment
from weft_trainer.program.plan import Plan
from weft_trainer.spec import Peer, parse_spec

PEERS = [Peer(0, "10.0.0.1", (1001, 1002, 1003, 1004)), Peer(1, "10.0.0.2", (2001, 2002, 2003, 2004))]
GIB = 1 << 30


# --- the plan ---


def plan(rank: int = 0, peers: list[Peer] | None = None, **changes: Any) -> Plan:
    found = PEERS if peers is None else peers
    changes = {"cpus": 2.5, "memory": 10 * GIB, "gang_secret": "s", **changes}
    parsed = parse_spec(spec("python train.py", rank=rank, learners=len(found), launcher="ray", **changes))
    return find_launcher("ray").plan(parsed, found[rank], found)


def options(made: Plan) -> NodeOptions:
    return NodeOptions(**json.loads(made.helpers[0].argv[-1]))


def test_ray_start_waits_for_its_raylet_and_no_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def get_node(address: str, node: str) -> dict[str, int]:
        asked.append((address, node))
        if len(asked) < 3:
            raise RuntimeError("not registered")
        return {"node_manager_port": 1}

    services = types.ModuleType("ray._private.services")
    params = types.SimpleNamespace(dashboard_agent_listen_port=2002)
    monkeypatch.setattr(services, "get_node", get_node, raising=False)
    monkeypatch.setattr(services, "start_ray_process", lambda command, kind: (command, kind), raising=False)
    monkeypatch.setitem(sys.modules, "ray._private.services", services)
    monkeypatch.setenv("RAY_START_HOOK", ray_options.START_HOOK)
    ray_options.start_hook(params, True)
    assert params.ray_client_server_port is None

    raylet = tmp_path / "raylet"
    raylet.symlink_to(shutil.which("sleep") or "")
    with subprocess.Popen([raylet, "600"]) as process:
        assert services.get_node("10.0.0.1:1001", "id") == {"node_manager_port": 1}
        assert asked == [("10.0.0.1:1001", "id")] * 3
        process.kill()
    asked.clear()
    with pytest.raises(RuntimeError, match="not registered"):
        services.get_node("10.0.0.1:1001", "id")
    assert len(asked) == 1

    raylet.unlink()
    raylet.write_bytes(b"an old one\0")
    assert services.start_ray_process([str(raylet), "--head"], "raylet") == ([str(raylet), "--head"], "raylet")
    raylet.write_bytes(b"\0FLAGS_dashboard_agent_listen_portE\0")
    told = [str(raylet), "--head", "--dashboard_agent_listen_port=2002"]
    assert services.start_ray_process([str(raylet), "--head"], "raylet") == (told, "raylet")
    assert services.start_ray_process(["/bin/gcs_server"], "gcs_server") == (["/bin/gcs_server"], "gcs_server")


def test_the_command_runs_on_learner_1_only() -> None:
    first, second = plan(), plan(rank=1)
    assert first.processes[0].argv[-3:] == ["10.0.0.1", "1002", "python train.py"]
    assert second.processes[0].argv[-2:] == ["10.0.0.1", "1002"]
    assert [len(made.helpers) for made in (first, second)] == [1, 1]
    assert first.processes[0].env == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "s",
        "RAY_ADDRESS": "10.0.0.1:1001",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_COLOR_PREFIX": "0",
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "150",
        "RAY_agent_register_timeout_ms": "600000",
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    }
    assert [made.helpers[0].env for made in (first, second)] == [first.processes[0].env] * 2


def test_what_a_manifest_sets_itself_is_left_alone() -> None:
    made = plan(env={"OMP_NUM_THREADS": "4", "RAY_COLOR_PREFIX": "1"})
    assert "RAY_COLOR_PREFIX" not in made.processes[0].env
    assert options(made).unset == []
    assert options(plan()).unset == ["OMP_NUM_THREADS"]


def test_ray_start_leaves_no_port_to_chance(tmp_path: Path) -> None:
    """A port is one that a learner has reserved, or 0: one that the kernel finds free. The raylet gets its agents'
    ports, as it ends when it waits for them longer than 15 s."""
    head, other = (start_command(options(plan(rank=rank)), tmp_path, 3 * GIB, (1, 2, 3, 4)) for rank in range(2))
    agents = {
        "dashboard-agent-grpc-port": "1",
        "dashboard-agent-listen-port": "2",
        "metrics-export-port": "3",
        "runtime-env-agent-port": "4",
    }
    ports = {"node-manager-port", "object-manager-port", "min-worker-port", "max-worker-port"}
    given = [
        dict(argument[2:].partition("=")[::2] for argument in command if "=" in argument) for command in (head, other)
    ]
    for arguments in given:
        assert {arguments[name] for name in ports} == {"0"}
        assert agents.items() <= arguments.items()
        assert arguments["num-cpus"] == "2"
        assert arguments["object-store-memory"] == str(3 * GIB)
        assert arguments["memory"] == str(7 * GIB)
        assert arguments["temp-dir"] == str(tmp_path)
    head_ports = {
        name: value for name, value in given[0].items() if name.endswith("port") and name not in ports | agents.keys()
    }
    assert head_ports == {"port": "1001", "ray-client-server-port": "1003", "dashboard-port": "1004"}
    assert given[0]["dashboard-host"] == given[0]["node-ip-address"] == "10.0.0.1"
    assert given[1]["address"] == "10.0.0.1:1001"
    assert given[1]["node-ip-address"] == "10.0.0.2"
    assert not {name for name in given[1] if name.endswith("port")} - ports - agents.keys()
    assert "--head" in head
    assert "--head" not in other
    assert "--block" in head
    assert "--block" in other


def test_ipv6() -> None:
    peers = [Peer(0, "fd00::1", (1, 2, 3, 4)), Peer(1, "fd00::2", (5, 6, 7, 8))]
    assert plan(peers=peers).processes[0].env["RAY_ADDRESS"] == "[fd00::1]:1"
    assert "--address=[fd00::1]:1" in start_command(options(plan(rank=1, peers=peers)), Path("/x"), None, (1, 2, 3, 4))


def test_half_a_cpu_is_one_of_rays() -> None:
    assert options(plan(cpus=0.5)).cpus == 1


def test_the_object_store_fits_into_dev_shm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 64 * GIB

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage)
    assert object_store(10 * GIB) == 3 * GIB
    assert object_store(None) is None
    assert object_store(100 << 20) == 80 << 20
    Usage.free = GIB
    assert object_store(10 * GIB) == GIB * 9 // 10
    Usage.free = 64 << 20  # Docker's; Ray takes a disk then, and says so
    assert object_store(10 * GIB) == 80 << 20


# --- the secret ---


def test_the_clusters_token_is_no_way_to_the_attempts() -> None:
    secret = derive_secret("weft_a_token", "gang")
    assert secret == derive_secret("weft_a_token", "gang")
    assert "weft_a_token" not in secret
    assert len({secret, derive_secret("weft_a_other", "gang"), derive_secret("weft_a_token", "x")}) == 3
    with pytest.raises(TrainerError, match="no secret"):
        plan(gang_secret="")


def test_a_platforms_own_ray_is_hidden_from_every_program(tmp_path: Path) -> None:
    class Folder:
        def __getattr__(self, name: str) -> Path:
            return tmp_path / name

    outer = {"RAY_ADDRESS": "1.2.3.4:6379", "RAY_AUTH_TOKEN": "x", "RAY_JOB_ID": "1", "HOME": "/home/weft"}
    learner = parse_spec(spec("x", env={"RAY_DEDUP_LOGS": "0"}))
    env = build_environment(learner, cast(Folders, Folder()), outer)
    left = {name: value for name, value in env.items() if name.startswith("RAY_")}
    assert left == {"RAY_DEDUP_LOGS": "0", "RAY_ADDRESS": "local"}
    assert env["HOME"] == "/home/weft"


# --- the gate ---


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def never() -> None:
    raise AssertionError("nobody answers")


def test_the_gate_opens_when_all_have_joined_and_tells_the_end(port: int) -> None:
    gate = Gate(port, "token", 3, lambda: True)
    client = GateClient("127.0.0.1", port, "token")
    waiting = threading.Thread(target=client.head, daemon=True)
    waiting.start()
    time.sleep(0.2)
    assert waiting.is_alive()
    gate.join(0)
    waiting.join(300)
    assert not waiting.is_alive()
    client.joined(2)
    assert gate.missing == [1]
    with pytest.raises(GateClosed):
        GateClient("127.0.0.1", port, "another").joined(1)
    assert gate.missing == [1]
    done: list[object] = []

    def await_all() -> None:
        client.ready(never)
        done.append("all")

    threads = [
        threading.Thread(target=await_all, daemon=True),
        threading.Thread(target=lambda: done.append(client.end(never)), daemon=True),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    assert done == []
    client.joined(1)
    threads[0].join(300)
    client.ended(-9)
    threads[1].join(300)
    assert done == ["all", -9]
    assert client.end(never) == -9


def test_a_command_gets_no_blame_for_a_broken_cluster(port: int) -> None:
    well = True
    gate = Gate(port, "token", 1, lambda: well)
    client = GateClient("127.0.0.1", port, "token")
    well = False
    with pytest.raises(GateClosed):
        client.ended(1)
    client.ended(0)  # what it was to do is done
    assert gate.answer(b"token end 0") == b"0"


def test_who_is_missing_is_named(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_node, "_JOIN_SECONDS", 0.2)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "token")
    gate = Gate(port, "token", 3, lambda: True)
    gate.join(0)
    keeper = ray_node.Keeper(replace(options(plan()), learners=3), threading.Event())
    with pytest.raises(ray_node.NodeFailed, match=r"only 1 of 3 learners have .* missing: learner 2, learner 3"):
        keeper._await_others(gate, lambda: None)


def test_why_ray_ended(tmp_path: Path) -> None:
    log = tmp_path / "start.log"
    said = ["Local node IP: 10.0.0.1", "Some Ray subprocesses exited unexpectedly:", "  raylet [exit code=-9]", ""]
    head = "2026-11-21 09:07:08,540\tINFO scripts.py:1265 -- "
    log.write_text("".join(f"{head}{line}\n" for line in [*said, "Remaining processes will be killed."]))
    assert ray_node.why_it_ended(log) == "raylet [exit code=-9]"
    log.write_text("Traceback (most recent call last):\n  File x\nValueError: no room\n\n")
    assert ray_node.why_it_ended(log) == "ValueError: no room"
    assert ray_node.why_it_ended(tmp_path / "none") == "it said nothing"


@pytest.mark.parametrize(
    ("version", "fits"), [("2.51.3", False), ("2.52.0", True), ("2.60.0", True), ("3.0.0rc1", True)]
)
def test_a_ray_that_takes_no_token_is_refused(version: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    if fits:
        ray_node.check_version()
    else:
        with pytest.raises(ray_node.NodeFailed, match=r"has Ray 2\.51\.3; launcher 'ray' needs 2\.52 or newer"):
            ray_node.check_version()


# --- the folder ---


def test_sessions_of_keepers_that_were_killed_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ray_folder, "_LONGEST", 1000)
    with session_folder() as folder:
        (folder / "session").mkdir()
        left, new = tmp_path / "weft-ray-left", tmp_path / "weft-ray-new"
        for session in (left, new):
            (session / "session").mkdir(parents=True)
        for session in (left, folder):
            os.utime(session, (0, 0))
        sweep(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([folder, new])
    assert list(tmp_path.iterdir()) == [new]


def test_rays_sockets_have_room_in_any_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 60)))
    with session_folder() as folder:
        longest = f"{folder}/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
        assert len(longest) <= 107
        assert folder.parent == Path("/tmp")


def test_the_logs_of_rays_servers_are_quoted_without_their_statistics(tmp_path: Path) -> None:
    logs = tmp_path / "session_latest" / "logs"
    logs.mkdir(parents=True)
    said = [f"[2026-11-23 05:46:{second:02} I 1 1] (raylet) step {second}" for second in range(20)]
    (logs / "raylet.out").write_text("\n".join([*said, "Global stats: 128 total", "raylet(+0xfc) [0x5] main()"]))
    found = ray_node.last_lines(tmp_path)
    assert found == [f"raylet.out: {line}" for line in said[-8:]]
    assert ray_node.last_lines(tmp_path / "none") == []
