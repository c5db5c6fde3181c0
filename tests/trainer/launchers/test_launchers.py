"""Launchers, by the environment of the processes that they start. The frameworks themselves run in tests/e2e."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.trainer.agents import Launch, spec
from tests.trainer.conftest import StartApi

from weft_trainer.errors import TrainerError
from weft_trainer.launchers import find_launcher
from weft_trainer.launchers.base import as_open_mpi
from weft_trainer.program.plan import Plan
from weft_trainer.spec import Peer, parse_spec

PEERS = [Peer(0, "10.0.0.1", (1001, 1002, 1003, 1004)), Peer(1, "10.0.0.2", (2001, 2002, 2003, 2004))]

# Rank 0 listens where MASTER_ADDR and MASTER_PORT point; the others come and tell their rank.
_RENDEZVOUS = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as server:
        came = sorted(server.accept()[0].recv(9).decode() for _ in range(world - 1))
    print("met", *came, flush=True)
else:
    while True:
        try:
            with socket.create_connection(place) as connection:
                connection.sendall(str(rank).encode())
            break
        except OSError:
            time.sleep(0.02)
print(rank, os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], os.environ["GROUP_RANK"], flush=True)
"""


def plan(launcher: str, rank: int = 0, peers: list[Peer] | None = None, **changes: Any) -> Plan:
    found = PEERS if peers is None else peers
    parsed = parse_spec(spec("python train.py", rank=rank, learners=len(found), launcher=launcher, **changes))
    return find_launcher(launcher).plan(parsed, found[rank], found)


def test_torchrun_gang_of_real_processes(start_api: StartApi, launch: Launch) -> None:
    command = f"cat > train.py <<'END'\n{_RENDEZVOUS}\nEND\npython train.py"
    api = start_api(command, learners=2, launcher="torchrun", gpus=2)
    agents = [launch(api, rank) for rank in range(2)]
    assert [agent.wait() for agent in agents] == [0, 0], [agent.log.read_text() for agent in agents]
    assert set(api.learners[0].lines) == {"[0] met 1 2 3", "[0] 0 0 2 0", "[1] 1 1 2 0"}
    assert set(api.learners[1].lines) == {"[0] 2 0 2 1", "[1] 3 1 2 1"}


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py",
        "cd sub && OMP_NUM_THREADS=1 exec /opt/bin/torchrun train.py",
        "python3 -m torch.distributed.run train.py",
    ],
)
def test_a_command_that_is_torchrun_itself_joins_one_gang(command: str) -> None:
    parsed = parse_spec(spec(command, rank=1, learners=2, launcher="torchrun", gpus=4))
    made = find_launcher("torchrun").plan(parsed, PEERS[1], PEERS)
    assert [process.argv for process in made.processes] == [["bash", "-c", command]]
    assert made.processes[0].env == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "4",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "1001",
    }
    assert made.slots == 4


@pytest.mark.parametrize("command", ["python train.py --mode torchrun", "python torchrun.py", "echo -m torchrun"])
def test_a_command_that_only_speaks_of_torchrun_is_started_in_every_slot(command: str) -> None:
    parsed = parse_spec(spec(command, rank=1, learners=2, launcher="torchrun", gpus=4))
    made = find_launcher("torchrun").plan(parsed, PEERS[1], PEERS)
    assert [process.env["RANK"] for process in made.processes] == ["4", "5", "6", "7"]


def test_tensorflow() -> None:
    config = json.loads(plan("tensorflow", rank=1, gpus=2).processes[0].env["TF_CONFIG"])
    assert config == {
        "cluster": {"worker": ["10.0.0.1:1001", "10.0.0.2:2001"]},
        "task": {"type": "worker", "index": 1},
    }
    alone = plan("tensorflow", peers=PEERS[:1])
    assert [dict(process.env) for process in alone.processes] == [{}]


def test_horovod() -> None:
    first, second = plan("horovod", gpus=2), plan("horovod", rank=1, gpus=2)
    assert first.await_ports == second.await_ports == [("10.0.0.1", 1001)]
    assert [helper.argv[-2:] for helper in first.helpers] == [["1001", "learner-1:2,learner-2:2"]]
    assert second.helpers == []
    environments = [process.env for process in (*first.processes, *second.processes)]
    assert [(env["HOROVOD_RANK"], env["HOROVOD_LOCAL_RANK"], env["HOROVOD_CROSS_RANK"]) for env in environments] == [
        ("0", "0", "0"),
        ("1", "1", "0"),
        ("2", "0", "1"),
        ("3", "1", "1"),
    ]
    assert {env["HOROVOD_SIZE"] for env in environments} == {"4"}
    assert environments[2]["HOROVOD_HOSTNAME"] == "learner-2"
    assert environments[2]["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "10.0.0.1"
    assert [process.label for process in first.processes] == ["[0] ", "[1] "]


@pytest.mark.parametrize(("learners", "gpus"), [(1, 0), (3, 1), (2, 2)])
@pytest.mark.parametrize("launcher", ["horovod", "torchrun", "tensorflow", "none"])
def test_any_number_of_learners_and_gpus_is_one_gang(launcher: str, learners: int, gpus: int) -> None:
    peers = [Peer(rank, f"10.0.0.{rank + 1}", (1001, 1002, 1003, 1004)) for rank in range(learners)]
    slots = max(1, gpus) if launcher in ("horovod", "torchrun") else 1
    environments = [
        process.env for rank in range(learners) for process in plan(launcher, rank, peers, gpus=gpus).processes
    ]
    size = learners * slots
    if launcher in ("horovod", "torchrun"):
        told = [(env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) for env in environments]
        assert told == [(str(rank), str(size), str(rank % slots)) for rank in range(size)]
    elif learners == 1:
        assert [dict(env) for env in environments] == [{}], "nobody to meet"
    elif launcher == "tensorflow":
        configs = [json.loads(env["TF_CONFIG"]) for env in environments]
        assert [config["task"]["index"] for config in configs] == list(range(learners))
        assert {len(config["cluster"]["worker"]) for config in configs} == {learners}
    else:
        assert [(env["RANK"], env["WORLD_SIZE"]) for env in environments] == [
            (str(rank), str(learners)) for rank in range(learners)
        ]


@pytest.mark.parametrize("launcher", ["torchrun", "none"])
def test_jax_and_keras_find_the_gang_unless_the_manifest_says(launcher: str) -> None:
    env = plan(launcher, rank=1).processes[0].env
    assert [env[name] for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")] == [
        "10.0.0.1:1002",
        "2",
        "1",
    ]
    keras = {name.removeprefix("KERAS_DISTRIBUTION_"): env[name] for name in env if name.startswith("KERAS_")}
    assert keras == {"JOB_ADDRESSES": "10.0.0.1:1002", "NUM_PROCESSES": "2", "PROCESS_ID": "1"}
    assert "JAX_LOCAL_DEVICE_IDS" not in env, "a single process has all devices"
    own = plan(launcher, env={"JAX_COORDINATOR_ADDRESS": "10.0.0.9:1"}).processes[0].env
    assert "JAX_COORDINATOR_ADDRESS" not in own
    assert own["JAX_PROCESS_ID"] == "0"


def test_with_jax_a_gang_looks_as_mpirun_starts_it() -> None:
    names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    found = as_open_mpi(plan("torchrun", rank=1, gpus=2), {}).processes
    assert [tuple(process.env[name] for name in names) for process in found] == [("4", "2", "0"), ("4", "3", "1")]
    [own] = as_open_mpi(plan("none", rank=1), {"OMPI_COMM_WORLD_SIZE": "9"}).processes
    assert [own.env.get(name) for name in names] == [None, "1", "0"]
    [alone] = as_open_mpi(plan("horovod"), {}).processes
    assert not [name for name in alone.env if name.startswith("OMPI_")], "Horovod has a gang of its own"


def test_each_jax_process_of_torchrun_has_a_gpu_of_its_own() -> None:
    environments = [process.env for process in plan("torchrun", rank=1, gpus=2).processes]
    assert [(env["JAX_PROCESS_ID"], env["JAX_LOCAL_DEVICE_IDS"]) for env in environments] == [("2", "0"), ("3", "1")]


def test_horovods_processes_wait_long_for_each_other_unless_the_manifest_says() -> None:
    name = "HOROVOD_GLOO_TIMEOUT_SECONDS"
    assert plan("horovod").processes[0].env[name] == "600"
    assert name not in plan("horovod", env={name: "40"}).processes[0].env


def test_horovod_alone_needs_no_rendezvous() -> None:
    alone = plan("horovod", peers=PEERS[:1])
    assert (alone.helpers, alone.await_ports) == ((), ())
    assert alone.processes[0].label == ""


def test_a_rendezvous_that_fails_says_so(start_api: StartApi, launch: Launch) -> None:
    """This Python has no Horovod."""
    api = start_api("echo x", learners=2, launcher="horovod")
    first, second = launch(api, 0), launch(api, 1)
    assert first.wait() == 1
    assert api.learners[0].exit is not None
    assert "No module named 'horovod'" in api.learners[0].exit["reason"]
    second.terminate()
    assert second.wait() == 143
    assert "x" not in api.learners[0].lines + api.learners[1].lines


def test_an_unknown_launcher() -> None:
    with pytest.raises(TrainerError, match="'mpi' is not one that this learner's image has: none, horovod"):
        find_launcher("mpi")
