"""Slurm's way: the command is a batch script, which runs once, in learner 1. Its ``srun`` starts tasks in all learners.

Each learner runs a node (:mod:`.slurm_node`), which starts the tasks of its learner. The node of learner 1 also runs
the command. ``srun`` and ``scontrol`` are small programs that the nodes put on the PATH. The number of tasks in each
learner and other defaults of ``srun`` are Slurm's own variables, in the manifest's ``env``.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence

from weft_trainer.errors import TrainerError
from weft_trainer.launchers.slurm_gang import Gang
from weft_trainer.launchers.slurm_hosts import repeated
from weft_trainer.program.plan import Plan, Process
from weft_trainer.spec import LearnerSpec, Peer

# The purposes of a learner's reserved ports.
_NODE, _MASTER = range(2)


class SlurmLauncher:
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        if not spec.gang_secret:
            raise TrainerError("launcher 'slurm' was given no secret for its gang")
        gang = Gang(spec.gang_secret, me.rank, tuple((peer.address, peer.ports[_NODE]) for peer in peers))
        env = job_environment(spec, me, peers) | gang.variable
        command = [spec.command] if me.rank == 0 else []
        node = [sys.executable, "-m", "weft_trainer.launchers.slurm_node", *command]
        return Plan([Process(node, env)], slots=_tasks_per_node(spec) or 1)


def job_number(job_id: str) -> int:
    """SLURM_JOB_ID: a number of 8 digits that is always the same for a job. JAX and Lightning make a port of it."""
    return 10_000_000 + int(hashlib.sha256(job_id.encode()).hexdigest()[:12], 16) % 90_000_000


def job_environment(spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> dict[str, str]:
    """The variables of the batch script; those of a task come with its step."""
    number, nodes, cpus = str(job_number(spec.job_id)), str(len(peers)), max(1, int(spec.cpus))
    names = ",".join(peer.address for peer in peers)
    tasks = _tasks_per_node(spec)
    env = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": spec.env.get("SLURM_JOB_NAME") or spec.job_name,
        "SLURM_CLUSTER_NAME": "weft",
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURMD_NODENAME": me.address,
        "SLURM_SUBMIT_HOST": peers[0].address,
        "SLURM_NODEID": str(me.rank),
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_TASKS_PER_NODE": repeated([tasks or 1] * len(peers)),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_CPUS_PER_NODE": repeated([cpus] * len(peers)),
        # For code that reads the variables of all other launchers.
        "MASTER_ADDR": peers[0].address,
        "MASTER_PORT": str(peers[0].ports[_MASTER]),
    }
    if tasks:
        env["SLURM_NTASKS"] = env["SLURM_NPROCS"] = str(tasks * len(peers))
    if spec.gpus:
        env["SLURM_GPUS_ON_NODE"] = str(spec.gpus)
        env["SLURM_JOB_GPUS"] = ",".join(map(str, range(spec.gpus)))
    if spec.memory:
        env["SLURM_MEM_PER_NODE"] = str(spec.memory >> 20)
    if spec.attempt > 1:
        env["SLURM_RESTART_COUNT"] = str(spec.attempt - 1)
    return env


def _tasks_per_node(spec: LearnerSpec) -> int | None:
    """None: the manifest does not say, and ``srun`` starts one task in each learner."""
    given = spec.env.get("SLURM_NTASKS_PER_NODE", "")
    if not given:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise TrainerError(f"env.SLURM_NTASKS_PER_NODE: expected a whole number from 1, found {given!r}")
    return int(given)
