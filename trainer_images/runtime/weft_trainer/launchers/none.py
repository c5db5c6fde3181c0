"""The command, once per learner."""

from __future__ import annotations

from collections.abc import Sequence

from weft_trainer.launchers.base import jax_environment, shell
from weft_trainer.program.plan import Plan, Process
from weft_trainer.spec import LearnerSpec, Peer


class NoLauncher:
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        env: dict[str, str] = {}
        if len(peers) > 1:
            # Programs that find each other by themselves (in FfDL: through files in JOB_STATE_DIR) can use these.
            env = {
                "RANK": str(me.rank),
                "WORLD_SIZE": str(len(peers)),
                "MASTER_ADDR": peers[0].address,
                "MASTER_PORT": str(peers[0].ports[0]),
                **jax_environment(spec, peers, me.rank, len(peers)),
            }
        return Plan([Process(shell(spec.command), env)])
