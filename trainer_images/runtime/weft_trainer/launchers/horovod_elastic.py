"""Horovod's elastic training, with workers that each learner's own agent starts: no ssh.

Horovod's own elastic driver runs beside the leader's workers (:mod:`weft_trainer.launchers.horovod_driver`) and learns
from the leader's agent which learners are in the round. A worker is started behind a small program that waits until the
driver has assigned it a rank (:mod:`weft_trainer.launchers.horovod_worker`). Workers that live keep their memory when
the gang changes: ``hvd.elastic.run`` takes them back to the last commit. A driver that is lost with its learner takes
all of that with it, and a round that starts everything anew goes on from the last checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from weft_trainer.errors import TrainerError
from weft_trainer.http import Http, Unreachable
from weft_trainer.launchers.base import shell, slot_count, slot_label
from weft_trainer.launchers.horovod import gloo_patience, host_name
from weft_trainer.machine.network import interface_of
from weft_trainer.program.plan import Plan, Process
from weft_trainer.spec import LearnerSpec, Peer

_SECONDS = 5.0
_GLOO_SECONDS = 120
"""Less than without elasticity, because a learner that is lost while the others wait for it holds them up for this
long."""


class HorovodElasticLauncher:
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer], learners: Sequence[int]) -> Plan:
        """As :meth:`Launcher.plan`; ``learners`` are the peers' learner ids, in the same order."""
        assert spec.elastic is not None
        slots = slot_count(spec)
        address, port = peers[0].address, peers[0].ports[0]
        host = host_name(learners[me.rank] - 1)
        waiter = [sys.executable, "-m", "weft_trainer.launchers.horovod_worker", f"http://{address}:{port}"]
        processes = [
            Process(
                [*waiter, f"{host}:{slot}", *shell(spec.command)],
                _environment(me, peers, host, slot) | gloo_patience(spec, _GLOO_SECONDS),
                slot_label(slot, slots),
            )
            for slot in range(slots)
        ]
        numbers = (port, spec.elastic.min * slots, spec.elastic.max * slots)
        driver = Process(
            [
                *(sys.executable, "-m", "weft_trainer.launchers.horovod_driver"),
                *(str(number) for number in numbers),
                _hosts(learners, slots),
            ],
            label="[driver] ",
        )
        return Plan(processes, [driver] if me.rank == 0 else [], [(address, port)], slots)

    def change(self, spec: LearnerSpec, peers: Sequence[Peer], learners: Sequence[int]) -> None:
        """Send the driver, which is here, the learners of the current round. Raises: TrainerError."""
        self._put(peers[0], "weft-hosts", _hosts(learners, slot_count(spec)))

    def end(self, leader: Peer) -> None:
        """Report the end of training to the driver, which is here: a learner that has only just joined must not wait
        for its part in it. Raises: TrainerError."""
        self._put(leader, "weft-end", "all")

    def _put(self, leader: Peer, what: str, value: str) -> None:
        url = f"http://{leader.address}:{leader.ports[0]}/{what}/all"
        try:
            answer = Http().request("PUT", url, body=value.encode(), timeout=_SECONDS)
        except Unreachable as error:
            raise TrainerError(f"Horovod's driver does not answer: {error}") from None
        if answer.status >= 300:
            raise TrainerError(f"Horovod's driver answers {answer.status}")


def _hosts(learners: Sequence[int], slots: int) -> str:
    return ",".join(f"{host_name(learner - 1)}:{slots}" for learner in learners)


def _environment(me: Peer, peers: Sequence[Peer], host: str, slot: int) -> dict[str, str]:
    """All that does not change while the worker lives; its rank comes from the driver."""
    env = {
        "HOROVOD_ELASTIC": "1",
        "HOROVOD_HOSTNAME": host,
        "HOROVOD_LOCAL_RANK": str(slot),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": peers[0].address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(peers[0].ports[0]),
        "MASTER_ADDR": peers[0].address,
        "MASTER_PORT": str(peers[0].ports[1]),
    }
    interface = interface_of(me.address)
    if interface is not None:
        env["HOROVOD_GLOO_IFACE"] = interface
    return env
