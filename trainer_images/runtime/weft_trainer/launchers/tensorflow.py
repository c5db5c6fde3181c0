"""TF_CONFIG for ``tf.distribute.MultiWorkerMirroredStrategy``: one worker a learner, with all of its GPUs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from weft_trainer.launchers.base import shell
from weft_trainer.program.plan import Plan, Process
from weft_trainer.spec import LearnerSpec, Peer


class TensorFlowLauncher:
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        env: dict[str, str] = {}
        if len(peers) > 1:  # a single worker needs no cluster, and TensorFlow would start a server for it
            workers = [f"{peer.address}:{peer.ports[0]}" for peer in peers]
            task = {"type": "worker", "index": me.rank}
            env["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
        return Plan([Process(shell(spec.command), env)])
