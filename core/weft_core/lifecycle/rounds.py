"""Rounds of an elastic attempt: which learners train together now, as pure functions of its rows (docs/elastic.md).

A round is a gang of fixed size. It opens when a member is lost or a learner joins, and closes when all that are to be
in it have arrived: then each of them has its place in it, and training goes on. At most one round is open.

Learners are numbered from 0 for the whole attempt, and no number is ever used again. The first member of a round, with
the smallest number, leads it: it has rank 0, serves the rendezvous, and what it writes is the job's checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

START_WAIT = timedelta(seconds=30)
"""How long the first round waits for learners that have not arrived, when there are enough without them."""
JOIN_WAIT = timedelta(seconds=10)
"""How long a learner that joins waits for others that have started, too, so that one round takes them all."""
AFTERMATH = timedelta(seconds=60)
"""Workers that end within this time after the loss of a peer are taken to have ended because of it."""


@dataclass(frozen=True)
class Round:
    n: int  # from 1
    opened_at: datetime
    closed_at: datetime | None = None
    members: tuple[int, ...] = ()
    """In order of rank; empty while it is open."""
    restart: bool = True
    """Whether all members' workers are started anew; else those that live keep what they have in memory."""
    reason: str = ""

    @property
    def open(self) -> bool:
        return self.closed_at is None


@dataclass(frozen=True)
class RoundLearner:
    """A learner of the attempt, in a round or not."""

    number: int  # from 0
    arrived: int | None = None
    """The latest round that it is, or was, ready for; None: it still starts."""
    arrived_at: datetime | None = None
    broken: int | None = None
    """The round in which its workers ended early."""
    left: bool = False
    left_reason: str = ""
    started: bool = False  # has its start grant
    finished: bool = False  # its workers have ended well

    @property
    def learner(self) -> str:
        return f"learner {self.number + 1}"


@dataclass(frozen=True)
class OpenRound:
    """Open a new round."""

    restart: bool
    reason: str


@dataclass(frozen=True)
class RestartRound:
    """Start all workers of the open round anew: it turned out that it can't keep them."""


@dataclass(frozen=True)
class CloseRound:
    """Close the open round with these members: all of them are there."""

    members: tuple[int, ...]


Change = OpenRound | RestartRound | CloseRound


def next_change(
    now: datetime, rounds: Sequence[Round], learners: Sequence[RoundLearner], least: int, keeps_memory: bool
) -> Change | None:
    """What has to change about an attempt's rounds now, if anything.

    Args:
        now: the database's clock.
        rounds: the last two, in order; only the last may be open.
        learners: all that the attempt has ever had.
        least: the smallest gang that can train.
        keeps_memory: whether workers survive a change of the gang (Horovod's do).
    """
    newest = rounds[-1] if rounds else None
    if newest is None:
        return OpenRound(True, "") if any(learner.arrived for learner in learners if not learner.left) else None
    if newest.open:
        return _close(now, newest, rounds[-2] if len(rounds) > 1 else None, learners, least)
    return _open(now, newest, learners, keeps_memory)


def is_over(last: Round | None, learners: Sequence[RoundLearner]) -> bool:
    """Whether the leader has finished training, so that no learner goes into another round.

    Args:
        last: the last closed round.
        learners: of the attempt.
    """
    return last is not None and any(learner.finished for learner in learners if learner.number == last.members[0])


def _open(now: datetime, last: Round, learners: Sequence[RoundLearner], keeps_memory: bool) -> OpenRound | None:
    if is_over(last, learners):
        return None
    inside = [learner for learner in learners if learner.number in last.members]
    gone = [learner for learner in inside if learner.left]
    broken = [learner for learner in inside if not learner.left and learner.broken == last.n]
    if gone:
        restart = not keeps_memory or bool(broken) or gone[0].number == last.members[0]
        return OpenRound(restart, _lost(gone))
    if broken:
        # Perhaps they noticed late that a peer was lost. If not, the reconciler decides which learner is to blame.
        after_loss = not last.restart and now - last.opened_at < AFTERMATH
        return OpenRound(True, last.reason) if after_loss else None
    joining = [
        learner
        for learner in learners
        if not learner.left and learner.number not in last.members and (learner.arrived or 0) > last.n
    ]
    if not joining or any(learner.finished for learner in inside):
        return None
    first = min(learner.arrived_at or now for learner in joining)
    starting = any(learner.started and learner.arrived is None and not learner.left for learner in learners)
    if starting and now - first < JOIN_WAIT:
        return None
    return OpenRound(not keeps_memory, f"{_names(joining)} joined")


def _close(
    now: datetime, newest: Round, last: Round | None, learners: Sequence[RoundLearner], least: int
) -> RestartRound | CloseRound | None:
    living = [learner for learner in learners if not learner.left]
    if last is not None and not newest.restart:
        led = any(learner.number == last.members[0] for learner in living)
        if not led or any(learner.broken == last.n for learner in living):
            return RestartRound()
    if is_over(last, learners):
        return None
    needed = [learner for learner in living if not learner.finished]
    if last is not None or now - newest.opened_at > START_WAIT:
        needed = [learner for learner in needed if learner.arrived is not None]
    ready = [learner for learner in needed if (learner.arrived or 0) >= newest.n]
    finished = sum(learner.finished for learner in living)
    if not ready or len(ready) < len(needed) or len(ready) + finished < least:
        return None
    return CloseRound(tuple(sorted(learner.number for learner in ready)))


def _lost(gone: Sequence[RoundLearner]) -> str:
    whys = {learner.left_reason for learner in gone}
    why = f" ({whys.pop()})" if len(whys) == 1 and all(whys) else ""
    return f"{_names(gone)} {'was' if len(gone) == 1 else 'were'} lost{why}"


def _names(learners: Sequence[RoundLearner]) -> str:
    numbers = [str(learner.number + 1) for learner in learners]
    if len(numbers) == 1:
        return f"learner {numbers[0]}"
    return f"learners {', '.join(numbers[:-1])} and {numbers[-1]}"
