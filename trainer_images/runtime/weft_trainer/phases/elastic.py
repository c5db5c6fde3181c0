"""An elastic job in one learner: it trains in round after round, each with another gang (docs/elastic.md).

Between two rounds, the workers are ended, the leader's last checkpoint reaches the store, and all learners go on from
it. Horovod's workers survive a change of the gang, and a round that keeps them needs none of that.
"""

from __future__ import annotations

import os
from contextlib import suppress

from weft_trainer.checkpoints.checkpoints import Checkpoints
from weft_trainer.errors import ApiError, TrainerError
from weft_trainer.launchers import find_launcher
from weft_trainer.launchers.horovod_elastic import HorovodElasticLauncher
from weft_trainer.machine.network import ReservedPorts
from weft_trainer.phases.learner import Learner
from weft_trainer.phases.membership import Leave, Membership, Round
from weft_trainer.phases.preparation import Brought, bring_inputs
from weft_trainer.program.endings import STOPPED, SUCCESS, Ending
from weft_trainer.program.environment import build_environment
from weft_trainer.program.plan import Plan
from weft_trainer.program.supervisor import Listener
from weft_trainer.stores.retry import PATIENCE
from weft_trainer.tunnels.place import Place
from weft_trainer.words import count

_PORTS = 4
_DISMISSED = Ending(1, "the others went on without this learner")


class ElasticTraining(Listener):
    """The rounds of one learner. It listens to the supervisor of each round's workers."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._spec = learner.spec
        self._horovod = HorovodElasticLauncher() if learner.spec.launcher == "horovod" else None
        self._membership = Membership(learner.api, learner.spec.learner_id, learner.control.ring)
        self._brought = Brought()
        self._ports = ReservedPorts(_PORTS, learner.config.published_port)

    def run(self) -> Ending:
        """How the learner ends, after its last round. Raises: Fenced, Stopped, TrainerError."""
        learner = self._learner
        found = learner.control.run(self._first)
        learner.api.phase("PROCESSING", self._brought.words, self._brought.inputs)
        with learner.running(build_environment(self._spec, learner.folders, os.environ)):
            return self._train_in_rounds(found)

    def _first(self) -> Round | Leave:
        self._brought = bring_inputs(self._learner)
        return self._arrive()

    def _arrive(self) -> Round | Leave:
        return self._membership.arrive(self._learner.address, self._ports.numbers)

    def _train_in_rounds(self, found: Round | Leave) -> Ending:
        ending = _DISMISSED
        while isinstance(found, Round):
            ending = self._train(found)
            if _is_end(ending):
                return ending
            if self._membership.dismissed:
                return _DISMISSED
            self._ports.close()
            self._ports = ReservedPorts(_PORTS, self._learner.config.published_port)
            found = self._learner.control.run(self._arrive)
        return SUCCESS if found.finished else ending

    def _train(self, found: Round) -> Ending:
        """One round, up to the end of its workers."""
        learner = self._learner
        checkpoints = learner.new_checkpoints(self._spec._replace(rank=0))
        restored = learner.control.run(lambda: self._restore(found, checkpoints))
        self._tell(found, restored)
        plan = self._plan(found)
        leads = learner.leads = found.me.rank == 0
        if leads:
            checkpoints.start()
        learner.supervisor = learner.new_supervisor(self)
        learner.checkpoints = checkpoints if leads else None
        self._ports.release()
        self._membership.watch(self._keep if self._horovod else None)
        env = {
            **learner.environment(plan),
            "NUM_LEARNERS": str(len(found.peers)),
            "WEFT_ROUND": str(found.n),
            "WEFT_PORT": str(found.me.ports[-1]),
        }
        learner.tunnels.begin(Place(env, learner.folders.model, learner.sealed))
        ending = learner.supervisor.run(plan, self._spec.command, env, learner.folders.model, learner.sealed)
        if leads and self._horovod and ending.reason == SUCCESS.reason:
            try:
                self._horovod.end(found.me)
            except TrainerError as error:
                self._say(str(error))
        if not _is_end(ending):
            learner.supervisor.end_helpers()
            learner.checkpoints = None
            if leads:
                self._put_away(checkpoints, ending)
        return ending

    # --- for the supervisor ---

    def stopping(self) -> None:
        self._learner.stopping()

    def failed(self, ending: Ending) -> None:
        with suppress(ApiError):  # arriving for the next round gives the same answer
            self._membership.broke(ending, self._learner.log.last_lines)

    @property
    def regroup(self) -> bool:
        return self._membership.regroup

    # --- steps of a round ---

    def _plan(self, found: Round) -> Plan:
        if self._horovod:
            return self._horovod.plan(self._spec, found.me, found.peers, found.learners)
        return find_launcher(self._spec.launcher).plan(
            self._spec._replace(rank=found.me.rank), found.me, found.peers
        )  # fmt: skip

    def _keep(self, found: Round) -> None:
        """Another round, in which this learner's workers run on. (In the membership's own thread.)"""
        self._say(f"round {found.n}: {found.reason}: training goes on; {_place(found)}")
        if self._horovod and found.me.rank == 0:
            try:
                self._horovod.change(self._spec, found.peers, found.learners)
            except TrainerError as error:
                self._say(str(error))  # Horovod's driver is a helper, whose end is noticed

    def _restore(self, found: Round, checkpoints: Checkpoints) -> int:
        if found.n == 1 and not self._spec.may_have_checkpoints:
            return 0
        return checkpoints.mirror(PATIENCE, found.n)

    def _put_away(self, checkpoints: Checkpoints, ending: Ending) -> None:
        try:
            checkpoints.finish(ending.killed_at, PATIENCE, ending.cut_off)
        except (TrainerError, OSError) as error:
            self._say(f"the last checkpoint was not stored: {error}")

    def _tell(self, found: Round, restored: int) -> None:
        place = _place(found)
        if found.n == 1:
            self._say(f"round 1: {place}")
            return
        start = (
            f"from the last checkpoint ({count(restored, 'file')})"
            if restored
            else "from the start, as there is no checkpoint"
        )
        reason = f"{found.reason}: " if found.reason else ""
        self._say(f"round {found.n}: {reason}training goes on {start}; {place}")

    def _say(self, text: str) -> None:
        self._learner.log.say(f"weft: {text}")


def _place(found: Round) -> str:
    learners = ", ".join(str(learner) for learner in found.learners)
    return f"rank {found.me.rank} of {len(found.peers)} (learners {learners})"


def _is_end(ending: Ending) -> bool:
    """Whether there is no further round for a learner that ended like this."""
    return ending.reason in (SUCCESS.reason, STOPPED.reason)
