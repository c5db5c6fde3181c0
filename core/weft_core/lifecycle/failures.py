"""Why an attempt failed: which learner is to blame, and the words for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from weft_core.engine import LearnerObservation, LearnerState
from weft_core.lifecycle.actions import RecordExits, SearchExits, Settle
from weft_core.lifecycle.states import Outcome
from weft_core.lifecycle.view import LearnerView, View
from weft_core.words import describe_exit, duration, size

CRASHED = "C201"
VANISHED = "S104"
VANISHING = ("was lost with its node", "vanished")
"""The words with which the reason of such a failure begins."""
_REPORTED = 2
_CODE = re.compile(r"^([SC]\d{3}):? +")
"""An agent that could not do its own part (data, results) begins its reason with FfDL's code: 'S302 can't reach …'."""

_KILLED_FOR_MEMORY = re.compile(r"SIGKILL\)?[:,] out of memory")
_PROBABLY = "probably out of memory"  # only the machine's count of kills is known, and another job may have caused one
"""The agent's words for a program that the kernel has killed; a GPU's memory is another."""


@dataclass(frozen=True)
class Failure:
    """A learner's end, as far as it is known."""

    rank: int
    outcome: Outcome
    what: str
    error_code: str
    exit_code: int | None
    weight: tuple[int, float]
    """The smallest is to blame. Gangs fail in cascades: a learner that was killed comes before those that report an
    error (they lost their peer), and of those the earliest."""

    @property
    def follows(self) -> bool:
        """Whether it may be only the consequence of what happened to another learner."""
        return self.weight[0] == _REPORTED

    def settle(self, grace: float) -> Settle:
        subject = f"learner {self.rank + 1}"
        joint = " " if self.what.startswith(("was ", "vanished", "left ")) else ": "
        return Settle(
            self.outcome, f"{subject}{joint}{self.what}", grace, self.error_code, self.exit_code, rank=self.rank
        )


def seek_reports(view: View, silent: frozenset[int]) -> SearchExits | RecordExits | None:
    """What to do about learners that ended without a report to the API. An agent that could not reach the API leaves
    its report in S3. None: there is nothing to search for or to record.

    Args:
        view: with a valid sighting.
        silent: ranks without a report whose process the engine no longer has.
    """
    if unsearched := silent - view.exits.keys():
        return SearchExits(unsearched)
    found = {rank: report for rank, report in view.exits.items() if report is not None and rank in silent}
    return RecordExits(found) if found else None


def find_failure(view: View, silent: frozenset[int]) -> Failure | None:
    """The failure that an attempt ends with, or None while nothing has failed for sure.

    Args:
        view: with a valid sighting.
        silent: ranks without a report whose process the engine no longer has; S3 was searched for their reports.
    """
    failures = find_failures(view, silent)
    blamed = min(failures, key=lambda failure: failure.weight, default=None)
    if blamed and blamed.follows and _fate_unknown(view, _observed(view)):
        return None  # it may have failed because another node was lost, which will be known in a moment
    return blamed


def kept_failure(view: View) -> Failure | None:
    """The failure after which learners stay for a look inside; None: no learner does."""
    failures = (reported(view, learner, None) for learner in view.kept)
    return min(failures, key=lambda failure: failure.weight, default=None)


def _observed(view: View) -> Mapping[int, LearnerObservation]:
    return view.sighting.observation.learners if view.sighting and view.sighting.observation else {}


def find_failures(view: View, silent: frozenset[int]) -> list[Failure]:
    """The failures of all members that have certainly ended; the arguments are those of :func:`find_failure`."""
    observed, failures = _observed(view), []
    for learner in view.members:
        seen = observed.get(learner.rank)
        if (learner.reported and learner.exit_code != 0) or (learner.kept and learner.rank in silent):
            failures.append(reported(view, learner, seen))
        elif learner.rank in silent and seen and seen.state is LearnerState.EXITED:
            failures.append(_died(view, learner, seen))
        elif learner.rank in silent and (lost := _lost(view, learner, seen)):
            failures.append(lost)
    return failures


def _fate_unknown(view: View, observed: Mapping[int, LearnerObservation]) -> bool:
    """Whether a learner on another node than the failed learner's has given no sign of life since the failure.

    Peers of a lost node fail at once, and the engine notices the loss of the node only after most of a minute. The
    verdict must wait for that, or the job would be blamed for the platform's fault. It need not wait if all learners
    run on one node.
    """
    ended = [learner for learner in view.learners if learner.reported and learner.exited_at and learner.exit_code != 0]
    first = min(ended, key=lambda learner: learner.exited_at or view.now, default=None)
    if first is None or first.exited_at is None or view.since(first.exited_at) > view.timings.verdict:
        return False
    return any(
        not other.reported
        and other.granted
        and other.node not in (None, first.node)
        and not (other.heartbeat_at and other.heartbeat_at > first.exited_at)
        and not (other.rank in observed and observed[other.rank].state is LearnerState.EXITED)
        for other in view.learners
    )


def reported(view: View, learner: LearnerView, seen: LearnerObservation | None) -> Failure:
    """The failure that a learner has reported itself."""
    code = 1 if learner.exit_code is None else learner.exit_code
    reason = learner.exit_reason or describe_exit(code)
    if (seen and seen.oom) or _KILLED_FOR_MEMORY.search(reason):
        return _out_of_memory(view, learner, seen, code)
    if seen and seen.over_storage:
        return _out_of_storage(learner, seen, code)
    error_code = CRASHED
    if found := _CODE.match(reason):
        error_code, reason = found[1], reason[found.end() :]
    if reason.startswith("killed"):
        reason = f"was {reason}"
    at = learner.exited_at.timestamp() if learner.exited_at else 0.0
    return Failure(learner.rank, Outcome.FAILED, reason, error_code, code, (_REPORTED, at))


def _died(view: View, learner: LearnerView, seen: LearnerObservation) -> Failure:
    """The agent itself ended without a report."""
    code = 1 if seen.exit_code is None else seen.exit_code
    if seen.oom:
        return _out_of_memory(view, learner, seen, code)
    if seen.over_storage:
        return _out_of_storage(learner, seen, code)
    how = seen.reason or describe_exit(code)
    what = f"was {how}" if how.startswith("killed") else f"its agent ended without a report: {how}"
    return Failure(learner.rank, Outcome.LOST, what, CRASHED, code, (1, learner.rank))


def _out_of_memory(view: View, learner: LearnerView, seen: LearnerObservation | None, code: int) -> Failure:
    if seen and _PROBABLY in seen.reason:
        reason = f"was {seen.reason}"
    else:
        reason = f"was killed: out of memory{f' (limit {size(view.attempt.memory)})' if view.attempt else ''}"
    return Failure(learner.rank, Outcome.FAILED, reason, CRASHED, code, (0, learner.rank))


def _out_of_storage(learner: LearnerView, seen: LearnerObservation, code: int) -> Failure:
    return Failure(learner.rank, Outcome.FAILED, f"was {seen.reason}", CRASHED, code, (0, learner.rank))


def _lost(view: View, learner: LearnerView, seen: LearnerObservation | None) -> Failure | None:
    """A learner that the engine does not know, or whose node does not answer, is lost only after several such answers
    and a silent heartbeat."""
    assert view.attempt is not None
    sign = learner.heartbeat_at or learner.started_at or learner.launched_at or view.attempt.launched_at
    silence = view.since(sign) if sign else 0.0
    if learner.absences < view.timings.absences or silence < view.timings.silence:
        return None
    if seen:  # a lost node is the platform's fault
        what = f"{VANISHING[0]}: {seen.reason}, and it has been silent for {duration(silence)}"
        return Failure(learner.rank, Outcome.INTERRUPTED, what, VANISHED, None, (0, learner.rank))
    what = f"{VANISHING[1]}: its engine does not know it any more, and it has been silent for {duration(silence)}"
    return Failure(learner.rank, Outcome.LOST, what, VANISHED, None, (3, learner.rank))


def with_log(reason: str, lines: list[str]) -> str:
    """A reason with the end of the learner's log under it."""
    kept = [line[:300] for line in lines if line.strip()][-10:]
    return reason if not kept else "\n".join([f"{reason}; its last lines:", *(f"  {line}" for line in kept)])


def headline(reason: str) -> str:
    """A reason without its log lines."""
    return reason.partition("\n")[0].removesuffix("; its last lines:")
