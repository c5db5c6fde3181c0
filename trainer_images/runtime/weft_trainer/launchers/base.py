"""A launcher decides which processes this learner starts, and with which environment, from the spec and the peers."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from weft_trainer.program.plan import Plan, Process
from weft_trainer.spec import LearnerSpec, Peer


class Launcher(Protocol):
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        """The processes of the learner ``me``. ``peers`` has all learners in order of rank, also this one. Raises
        TrainerError."""


def shell(command: str) -> list[str]:
    """The user's command as it stands in the manifest."""
    return ["bash", "-c", command]


def slot_count(spec: LearnerSpec) -> int:
    """The number of workers: one for each GPU, or one on a learner without GPUs."""
    return max(1, spec.gpus)


def jax_environment(spec: LearnerSpec, peers: Sequence[Peer], rank: int, world: int) -> dict[str, str]:
    """The gang as JAX programs and ``keras.distribution.initialize()`` look for it, unless the manifest says. The names
    for JAX are Kubeflow's; ``jax.distributed.initialize()`` itself reads the address only."""
    head = f"[{peers[0].address}]" if ":" in peers[0].address else peers[0].address
    address = f"{head}:{peers[0].ports[1]}"  # a program may use torch.distributed, too, which has the first port
    env = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(world),
        "JAX_PROCESS_ID": str(rank),
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(world),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(rank),
    }
    return {name: value for name, value in env.items() if name not in spec.env}


def as_open_mpi(plan: Plan, given: Mapping[str, str]) -> Plan:
    """A plan whose processes find their gang as those of Open MPI's mpirun do. ``jax.distributed.initialize()`` reads
    the number of processes from these variables, and from no plain ones.

    Args:
        given: the manifest's variables, which win.
    """

    def with_names(process: Process) -> Process:
        if "JAX_NUM_PROCESSES" not in process.env:
            return process
        names = {
            "OMPI_MCA_orte_hnp_uri": "-",  # JAX looks whether it is there; the address is JAX_COORDINATOR_ADDRESS
            "OMPI_COMM_WORLD_SIZE": process.env["JAX_NUM_PROCESSES"],
            "OMPI_COMM_WORLD_RANK": process.env["JAX_PROCESS_ID"],
            "OMPI_COMM_WORLD_LOCAL_RANK": process.env.get("LOCAL_RANK", "0"),
        }
        names = {name: value for name, value in names.items() if name not in given}
        return process._replace(env=names | dict(process.env))

    return plan._replace(processes=[with_names(process) for process in plan.processes])


def slot_label(slot: int, slots: int) -> str:
    return f"[{slot}] " if slots > 1 else ""


def end_like(code: int) -> None:
    """End this process as another one has ended."""
    sys.stdout.flush()
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
