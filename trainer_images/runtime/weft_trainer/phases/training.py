"""The program of a learner in a gang of fixed size (an elastic job's is in :mod:`.elastic`)."""

from __future__ import annotations

from weft_trainer.machine.network import ReservedPorts
from weft_trainer.phases.keeping import keep
from weft_trainer.phases.learner import Learner
from weft_trainer.phases.preparation import prepare
from weft_trainer.program.endings import Ending

_PORTS = 5
"""Four for the launchers, and the last for the program itself."""


def train(learner: Learner) -> Ending:
    """Prepare the program and run it to its end. Raises: Fenced, Stopped, TrainerError."""
    with ReservedPorts(_PORTS, learner.config.published_port) as ports:
        plan = learner.control.run(lambda: prepare(learner, ports.numbers))
        env = learner.environment(plan) | {"WEFT_PORT": str(ports.numbers[-1])}
        with learner.running(env):
            if learner.checkpoints is not None:
                learner.checkpoints.start()
            ports.release()
            ending = learner.supervisor.run(plan, learner.spec.command, env, learner.folders.model, learner.sealed)
            keep(learner, ending)
            return ending
