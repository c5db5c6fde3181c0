"""A Ray cluster for this job alone: its head in learner 1, one Ray node a learner, the command once, on the head.

Each learner's helper (``ray_node``) keeps its Ray node; on learner 1 it also serves the gate (``ray_gate``), at which
the nodes report that they have joined and the command's process (``ray_command``) reports how it ended.

The cluster refuses every connection without its token, which is derived from the attempt's token and which only the
job's learners know. That holds for Ray's dashboard, too. The dashboard listens on the address that the other learners
know, because Ray Train's actors ask it for the state of other actors, wherever they run (without a dashboard, they
complain every second).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from weft_trainer.errors import TrainerError
from weft_trainer.launchers.ray_options import NodeOptions
from weft_trainer.program.plan import Plan, Process
from weft_trainer.spec import LearnerSpec, Peer

# The purposes of learner 1's reserved ports. All others that Ray opens are free ones that the kernel picks.
_GCS, _GATE, _CLIENT, _DASHBOARD = range(4)
_DEFAULTS = {
    "RAY_COLOR_PREFIX": "0",  # a job's log is no terminal
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "150",  # many processes start, on perhaps one busy CPU
    "RAY_agent_register_timeout_ms": "600000",  # likewise: a raylet ends after 30 s without its agent
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",  # it shows each line that a worker prints twice
}


class RayLauncher:
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        if not spec.gang_secret:
            raise TrainerError("launcher 'ray' was given no secret for its cluster")
        head = peers[0]
        env = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": spec.gang_secret,
            # Also for all processes that a worker starts: on a machine with several clusters, Ray would not know which
            # to use.
            "RAY_ADDRESS": _place(head.address, head.ports[_GCS]),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        options = NodeOptions(
            rank=me.rank,
            learners=len(peers),
            address=me.address,
            head=head.address,
            gcs_port=head.ports[_GCS],
            gate_port=head.ports[_GATE],
            client_port=head.ports[_CLIENT],
            dashboard_port=head.ports[_DASHBOARD],
            cpus=max(1, int(spec.cpus)),  # Ray counts whole ones
            gpus=spec.gpus,
            memory=spec.memory,
            # Weft's default is for one process a learner; Ray sets it for each task, by the CPUs that the task has.
            unset=() if "OMP_NUM_THREADS" in spec.env else ("OMP_NUM_THREADS",),
        )
        env |= {name: value for name, value in _DEFAULTS.items() if name not in spec.env}
        node = Process([*_program("ray_node"), json.dumps(asdict(options))], env, label="[ray] ")
        gate = [head.address, str(head.ports[_GATE])]
        if me.rank == 0:
            return Plan([Process([*_program("ray_command"), *gate, spec.command], env)], [node])
        return Plan([Process([*_program("ray_command"), *gate], env)], [node])


def _program(module: str) -> list[str]:
    return [sys.executable, "-m", f"weft_trainer.launchers.{module}"]


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
