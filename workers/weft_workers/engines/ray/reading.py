"""Reads the state of a run from its Ray job."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft_core.engine import LearnerObservation, LearnerState, Observation
from weft_core.words import size

CANCELS = "cancels"
"""In the metadata of a Ray job that takes another one back: which."""
STATUS = "weft_status"
"""The driver's report in its job's metadata (weft_trainer.ray_gang.board)."""
_TERMINAL = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_BROKEN = frozenset({"RUNTIME_ENV_SETUP_FAILURE", "JOB_ENTRYPOINT_COMMAND_START_ERROR"})
# Of the actor that is the parent of a job's process.
_OOM = re.compile(r"low on memory|OutOfMemory|out-of-memory|memory monitor", re.IGNORECASE)
_NODE_LOST = re.compile(r"node (has |had )?(died|was terminated|is dead|was unexpectedly)", re.IGNORECASE)
# Ray's core ends a process that has waited a minute for the head. The Python of the driver has no say in it.
_UNANSWERED = re.compile(r"Failed to connect to GCS within \d+ seconds")
_TAIL = 3  # lines of Ray's message that say why


@dataclass(frozen=True)
class Run:
    """A Ray job that is one of our runs."""

    job: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.job["submission_id"])

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.job.get("metadata") or {}

    @property
    def size(self) -> int:
        """How many learners it has."""
        return int(self.metadata["learners"])

    @property
    def alone(self) -> bool:
        """It has one learner, which its job's own process looks after (weft_trainer.ray_gang.alone)."""
        return self.size == 1

    @property
    def terminal(self) -> bool:
        """Its driver has ended."""
        return self.job.get("status") in _TERMINAL

    @property
    def pending(self) -> bool:
        return self.job.get("status") == "PENDING"

    @property
    def status(self) -> Mapping[str, Any]:
        """The last status that the driver published; empty: none."""
        try:
            status = json.loads(self.metadata[STATUS])
        except (KeyError, TypeError, ValueError):
            return {}
        return status if isinstance(status, dict) else {}

    @property
    def stopped(self) -> bool:
        """Its driver has obeyed a stop."""
        return bool(self.status.get("stopped"))

    @property
    def learners(self) -> list[Mapping[str, Any]]:
        """The learners in the driver's last status; empty: there is none."""
        found = self.status.get("learners")
        return [learner for learner in found if isinstance(learner, dict)] if isinstance(found, list) else []

    @property
    def settled(self) -> bool:
        """Whether all learners have ended and the driver has published that."""
        return bool(self.learners) and all(learner.get("state") == LearnerState.EXITED for learner in self.learners)

    @property
    def ray_job_id(self) -> str | None:
        return self.job.get("job_id")


def reserved(run: Run) -> dict[str, float]:
    """The resources of each learner, by Ray's names."""
    try:
        each = json.loads(run.metadata["resources"])
        return {"CPU": each["cpus"], "GPU": each["gpus"], "memory": each["memory"], **each["extra"]}
    except (KeyError, TypeError, ValueError):
        return {}


def is_ours(job: Mapping[str, Any], installation: str, engine: str) -> bool:
    metadata = job.get("metadata")
    if not isinstance(metadata, dict) or not str(metadata.get("learners", "")).isdecimal():
        return False
    return metadata.get("installation") == installation and metadata.get("engine") == engine


def is_done_cancel(job: Mapping[str, Any], installation: str, engine: str) -> bool:
    metadata = job.get("metadata")
    if not isinstance(metadata, dict) or CANCELS not in metadata or job.get("status") not in _TERMINAL:
        return False
    return metadata.get("installation") == installation and metadata.get("engine") == engine


def is_ghost(job: Mapping[str, Any]) -> bool:
    """Whether it is only the record that Ray writes of a run whose job was deleted before Ray noticed that its driver
    had ended."""
    name, entrypoint = str(job.get("submission_id")), str(job.get("entrypoint"))
    return name.startswith("weft-") and not job.get("metadata") and entrypoint.startswith("Entrypoint not found")


def observe(run: Run, living: frozenset[int] = frozenset()) -> Observation:
    """The run as the engine's contract has it.

    Args:
        living: ranks whose actor Ray still has, of a run whose driver died.
    """
    status = run.status
    failed = str(status.get("failed", ""))
    if failed:
        code = str(status.get("failed_code") or "S101")
        return Observation(run.name, _learners(run, living), failed=failed, failed_code=code)
    if run.terminal and not run.learners and (why := never_started(run)):
        return Observation(run.name, failed=why, failed_code="S101")
    return Observation(run.name, _learners(run, living))


def never_started(run: Run) -> str:
    """Why the driver could not even begin, if no later try could; empty: the platform took it back, or the cluster did
    not answer the driver (weft_trainer.ray_gang.driver.unless_away)."""
    kind, code = run.job.get("error_type"), run.job.get("driver_exit_code")
    ended = kind == "JOB_ENTRYPOINT_COMMAND_ERROR" and code is not None and 0 < code < 128
    unanswered = code == os.EX_TEMPFAIL or _UNANSWERED.search(str(run.job.get("message") or ""))
    if kind in _BROKEN or (ended and not unanswered):
        return f"its driver could not start on the Ray cluster: {_tail(run)}"
    return ""


def _learners(run: Run, living: frozenset[int]) -> dict[int, LearnerObservation]:
    if run.learners:
        return {rank: _learner(run, rank, learner, rank in living) for rank, learner in enumerate(run.learners)}
    ranks = range(run.size)
    if not run.terminal:
        reason = _placing(run) if run.alone and run.pending else "its driver is being started on the Ray cluster"
        return {rank: LearnerObservation(rank, LearnerState.STARTING, reason=reason) for rank in ranks}
    return {rank: _taken(run, rank, "") for rank in ranks}


def _placing(run: Run) -> str:
    """The reason of a job that is not placed yet: Ray does not say whether there is no room or it is about to start."""
    has = reserved(run)
    shown = ", ".join(
        f"{name}: {size(amount)}" if name == "memory" else f"{name}: {amount:g}"
        for name, amount in has.items()
        if amount
    )
    return f"Ray is placing it: 1 × {{{shown}}}; where there is no room, its autoscaler is asked"


def _learner(run: Run, rank: int, said: Mapping[str, Any], lives: bool) -> LearnerObservation:
    try:
        state = LearnerState(said.get("state", ""))
    except ValueError:
        state = LearnerState.STARTING
    node = str(said.get("node", ""))
    if state is LearnerState.EXITED:
        return LearnerObservation(
            rank,
            state,
            exit_code=said.get("exit_code"),
            reason=str(said.get("reason", "")),
            oom=bool(said.get("oom")),
            interrupted=bool(said.get("interrupted")),
            node=node,
        )
    if run.terminal and not lives:
        return _taken(run, rank, node)
    return LearnerObservation(
        rank, state, reason=str(said.get("reason", "")), node=node, unreachable=bool(said.get("unreachable"))
    )


def _taken(run: Run, rank: int, node: str) -> LearnerObservation:
    """The driver ended before this learner did. The cluster is to blame, as the driver runs no code of a user's."""
    message = str(run.job.get("message") or "")
    if run.alone and _OOM.search(message):
        reason = "killed by Ray's memory monitor: its node was running out of memory"
        return LearnerObservation(rank, LearnerState.EXITED, exit_code=-9, reason=reason, oom=True, node=node)
    if run.job.get("status") == "STOPPED":
        reason = "its job was stopped on the Ray cluster"
    elif run.alone and _NODE_LOST.search(message):
        reason = f"its node {node} was lost"
    elif run.job.get("error_type") == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT":
        reason = f"Ray has found no room for it: {_tail(run)}"
    else:
        reason = f"its driver on the Ray cluster was lost: {_tail(run)}"
    return LearnerObservation(rank, LearnerState.EXITED, exit_code=-9, reason=reason, interrupted=True, node=node)


def _tail(run: Run) -> str:
    lines = [line.strip() for line in str(run.job.get("message") or "").splitlines() if line.strip()]
    return " ".join(lines[-_TAIL:])[-600:] or "Ray does not say why"
