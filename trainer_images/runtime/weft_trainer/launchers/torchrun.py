"""Starts workers as ``torchrun`` does: one for each GPU (or one on a learner without GPUs), with learner 1 as master.

This module starts the workers itself, and does not use ``python -m torch.distributed.run``. That agent imports torch
once more and holds a rendezvous of its own before the program may start (2 learners of 1 worker on 2 cores: 6.9 s until
the gang has met, 2.7 s without it). It also kills a stopped worker 30 seconds after SIGTERM, whatever grace the job has
for a last checkpoint. The workers see the same environment either way. A command that is itself ``torchrun …`` (or
``python -m torch.distributed.run …``) is started once for each learner. torchrun's own PET_ variables tell it the
number of nodes, so that all learners train in one gang.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft_trainer.launchers.base import jax_environment, shell, slot_count, slot_label
from weft_trainer.program.plan import Plan, Process
from weft_trainer.spec import LearnerSpec, Peer

# As a command, not as an argument: at the start of a command, after assignments and words such as `exec`.
_IS_TORCHRUN = re.compile(
    r"(^|[;&|(\n])\s*(\w+=\S*\s+|exec\s+|time\s+)*(\S*/)?torchrun(\s|$)"
    r"|\s-m\s+torch\.distributed\.(run|launch)(\s|$)"
)


class TorchrunLauncher:
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        slots = slot_count(spec)
        if _IS_TORCHRUN.search(spec.command):
            return Plan([Process(shell(spec.command), _torchrun_defaults(me, peers, slots))], slots=slots)
        processes = [
            Process(shell(spec.command), _worker(spec, me, peers, slot, slots), slot_label(slot, slots))
            for slot in range(slots)
        ]
        return Plan(processes, slots=slots)


def _worker(spec: LearnerSpec, me: Peer, peers: Sequence[Peer], slot: int, slots: int) -> dict[str, str]:
    rank, world = me.rank * slots + slot, len(peers) * slots
    env = jax_environment(spec, peers, rank, world)
    if slots > 1 and "JAX_LOCAL_DEVICE_IDS" not in spec.env:
        env["JAX_LOCAL_DEVICE_IDS"] = str(slot)  # or each process would take all of the learner's GPUs
    return env | {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(slot),
        "LOCAL_WORLD_SIZE": str(slots),
        "GROUP_RANK": str(me.rank),
        "GROUP_WORLD_SIZE": str(len(peers)),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "MASTER_ADDR": peers[0].address,
        "MASTER_PORT": str(peers[0].ports[0]),
        # Weft restarts the whole gang as a new attempt, never a worker alone.
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": spec.job_id,
    }


def _torchrun_defaults(me: Peer, peers: Sequence[Peer], slots: int) -> dict[str, str]:
    """Defaults of torchrun's options; the command's own options win."""
    return {
        "PET_NNODES": str(len(peers)),
        "PET_NODE_RANK": str(me.rank),
        "PET_NPROC_PER_NODE": str(slots),
        "PET_MASTER_ADDR": peers[0].address,
        "PET_MASTER_PORT": str(peers[0].ports[0]),
    }
