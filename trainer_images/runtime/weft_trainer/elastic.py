"""An elastic job in one learner: it trains in round after round, each with another gang (docs/elastic.md).

Between two rounds workers are ended, the leader's last checkpoint reaches the store, and all go on from it. Where the
launcher's workers survive a change of the gang (Horovod's), a round that keeps them needs none of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from weft_trainer.api import ApiClient
from weft_trainer.checkpoints import Checkpoints
from weft_trainer.control import Control
from weft_trainer.download import PATIENCE, count
from weft_trainer.endings import STOPPED, SUCCESS, Ending
from weft_trainer.errors import ApiError, TrainerError
from weft_trainer.launchers import find_launcher
from weft_trainer.launchers.base import Plan
from weft_trainer.launchers.horovod_elastic import HorovodElasticLauncher
from weft_trainer.membership import Leave, Membership, Round
from weft_trainer.network import ReservedPorts
from weft_trainer.spec import LearnerSpec
from weft_trainer.supervisor import Supervisor

_PORTS = 4
_DISMISSED = Ending(1, "the others went on without this learner")


@dataclass(frozen=True)
class Tools:
    """What a learner has for its rounds."""

    spec: LearnerSpec
    control: Control
    api: ApiClient
    folder: Path
    """Where commands run."""
    prepare: Callable[[], str]
    """Brings code and data; gives the address at which peers reach this learner."""
    begin: Callable[[], None]
    """Called in the first round, before the command runs."""
    environment: Callable[[Plan], Mapping[str, str]]
    supervisor: Callable[..., Supervisor]
    checkpoints: Callable[[LearnerSpec], Checkpoints]
    hold: Callable[[Supervisor, Checkpoints | None], None]
    """Who looks after the workers now, and after CHECKPOINT_DIR, if this learner leads."""
    say: Callable[[str], None]
    """Writes a line to the log."""
    last_lines: Callable[[], list[str]]


class ElasticTraining:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._spec = tools.spec
        self._control = tools.control
        self._horovod = HorovodElasticLauncher() if tools.spec.launcher == "horovod" else None
        self._membership = Membership(tools.api, tools.spec.learner_id, tools.control.ring)
        self._address = ""
        self._ports = ReservedPorts(_PORTS)

    def run(self) -> Ending:
        """How the learner ends, after its last round. Raises: Fenced, Stopped, TrainerError."""
        found = self._control.run(self._first)
        self._tools.begin()
        ending = _DISMISSED
        while isinstance(found, Round):
            ending = self._train(found)
            if _is_end(ending):
                return ending
            if self._membership.dismissed:
                return _DISMISSED
            self._ports = ReservedPorts(_PORTS)
            found = self._control.run(self._arrive)
        return SUCCESS if found.finished else ending

    def _first(self) -> Round | Leave:
        self._address = self._tools.prepare()
        return self._arrive()

    def _arrive(self) -> Round | Leave:
        return self._membership.arrive(self._address, self._ports.numbers)

    def _train(self, found: Round) -> Ending:
        """One round, up to the end of its workers."""
        checkpoints = self._tools.checkpoints(replace(self._spec, rank=0))
        restored = self._control.run(lambda: self._restore(found, checkpoints))
        self._tell(found, restored)
        plan = self._plan(found)
        leads = found.me.rank == 0
        if leads:
            checkpoints.start()
        supervisor = self._tools.supervisor(lambda: self._membership.regroup, self._broke)
        self._tools.hold(supervisor, checkpoints if leads else None)
        self._ports.release()
        self._membership.watch(self._keep if self._horovod else None)
        env = {
            **self._tools.environment(plan),
            "NUM_LEARNERS": str(len(found.peers)),
            "WEFT_ROUND": str(found.n),
            "WEFT_PORT": str(found.me.ports[-1]),
        }
        ending = supervisor.run(plan, self._spec.command, env, self._tools.folder)
        if leads and self._horovod and ending.reason == SUCCESS.reason:
            try:
                self._horovod.end(found.me)
            except TrainerError as error:
                self._tools.say(f"weft: {error}")
        if not _is_end(ending):
            supervisor.end_helpers()
            self._tools.hold(supervisor, None)
            if leads:
                self._put_away(checkpoints, ending)
        return ending

    def _plan(self, found: Round) -> Plan:
        if self._horovod:
            return self._horovod.plan(self._spec, found.me, found.peers, found.learners)
        return find_launcher(self._spec.launcher).plan(
            replace(self._spec, rank=found.me.rank), found.me, found.peers
        )  # fmt: skip

    def _keep(self, found: Round) -> None:
        """Another round, in which this learner's workers run on. (In the membership's own thread.)"""
        self._tools.say(f"weft: round {found.n}: {found.reason}: training goes on; {_place(found)}")
        if self._horovod and found.me.rank == 0:
            try:
                self._horovod.change(self._spec, found.peers, found.learners)
            except TrainerError as error:
                self._tools.say(f"weft: {error}")  # it is a helper, whose end is noticed

    def _restore(self, found: Round, checkpoints: Checkpoints) -> int:
        if found.n == 1 and not self._spec.may_have_checkpoints:
            return 0
        return checkpoints.mirror(PATIENCE, found.n)

    def _put_away(self, checkpoints: Checkpoints, ending: Ending) -> None:
        try:
            checkpoints.finish(ending.killed_at, PATIENCE, ending.cut_off)
        except (TrainerError, OSError) as error:
            self._tools.say(f"weft: the last checkpoint was not stored: {error}")

    def _broke(self, ending: Ending) -> None:
        with suppress(ApiError):  # it says the same when this learner wants to go on
            self._membership.broke(ending, self._tools.last_lines())

    def _tell(self, found: Round, restored: int) -> None:
        place = _place(found)
        if found.n == 1:
            self._tools.say(f"weft: round 1: {place}")
            return
        start = (
            f"from the last checkpoint ({count(restored)})" if restored else "from the start, as there is no checkpoint"
        )
        reason = f"{found.reason}: " if found.reason else ""
        self._tools.say(f"weft: round {found.n}: {reason}training goes on {start}; {place}")


def _place(found: Round) -> str:
    learners = ", ".join(str(one) for one in found.learners)
    return f"rank {found.me.rank} of {len(found.peers)} (learners {learners})"


def _is_end(ending: Ending) -> bool:
    """Whether there is no further round for whoever ended like this."""
    return ending.reason in (SUCCESS.reason, STOPPED.reason)
