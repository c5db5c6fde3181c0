"""Horovod over Gloo, with no ssh and no mpirun: learner 1 serves the rendezvous, each learner starts its own slots.

The environment is what Horovod's own ``create_slot_env_vars`` and Gloo runner give, with each learner as one host
('learner-1:slots'); it is computed here, as with the same number of slots everywhere it is a matter of two divisions,
and importing ``horovod.runner`` would cost every start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from weft_trainer.launchers.base import shell, slot_count, slot_label
from weft_trainer.machine.network import interface_of
from weft_trainer.program.plan import Plan, Process
from weft_trainer.spec import LearnerSpec, Peer


class HorovodLauncher:
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        slots = slot_count(spec)
        rendezvous = (peers[0].address, peers[0].ports[0])
        processes = [
            Process(
                shell(spec.command), _slot(me, peers, slot, slots) | gloo_patience(spec, 600), slot_label(slot, slots)
            )
            for slot in range(slots)
        ]
        if len(peers) * slots == 1:
            return Plan(processes)  # alone: Gloo meets nobody
        helpers = [_rendezvous_server(len(peers), slots, rendezvous[1])] if me.rank == 0 else []
        return Plan(processes, helpers, [rendezvous], slots)


def host_name(rank: int) -> str:
    return f"learner-{rank + 1}"


def gloo_patience(spec: LearnerSpec, seconds: int) -> dict[str, str]:
    """How long processes wait for each other, unless the manifest says otherwise. Horovod's own 30 s are too short: a
    process may reach ``hvd.init()`` later because of imports on a busy machine, or files that it reads before."""
    name = "HOROVOD_GLOO_TIMEOUT_SECONDS"
    return {} if name in spec.env else {name: str(seconds)}


def _slot(me: Peer, peers: Sequence[Peer], slot: int, slots: int) -> dict[str, str]:
    rank, size = me.rank * slots + slot, len(peers) * slots
    env = {
        "HOROVOD_HOSTNAME": host_name(me.rank),
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(size),
        "HOROVOD_LOCAL_RANK": str(slot),
        "HOROVOD_LOCAL_SIZE": str(slots),
        "HOROVOD_CROSS_RANK": str(me.rank),
        "HOROVOD_CROSS_SIZE": str(len(peers)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        # For code that reads the variables of all other launchers.
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(slot),
        "LOCAL_WORLD_SIZE": str(slots),
        "MASTER_ADDR": peers[0].address,
        "MASTER_PORT": str(peers[0].ports[1]),
    }
    if size > 1:
        env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = peers[0].address
        env["HOROVOD_GLOO_RENDEZVOUS_PORT"] = str(peers[0].ports[0])
        interface = interface_of(me.address)
        if interface is not None:
            env["HOROVOD_GLOO_IFACE"] = interface
    return env


def _rendezvous_server(learners: int, slots: int, port: int) -> Process:
    hosts = ",".join(f"{host_name(rank)}:{slots}" for rank in range(learners))
    module = "weft_trainer.launchers.horovod_rendezvous"
    return Process([sys.executable, "-m", module, str(port), hosts], label="[rendezvous] ")
