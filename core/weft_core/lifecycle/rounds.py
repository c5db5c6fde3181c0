"""Rounds of an elastic attempt: who trains together now, as pure functions of what is written down (docs/elastic.md).

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
"""So long the first round waits for learners that have not arrived, when there are enough without them."""
JOIN_WAIT = timedelta(seconds=10)
"""So long one that joins waits for others that have started too: one round for all of them."""
AFTERMATH = timedelta(seconds=60)
"""Workers that end within this time after their peer was lost have ended for that."""


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
class Member:
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
class Open:
    """A new round is to be opened."""

    restart: bool
    reason: str


@dataclass(frozen=True)
class Restart:
    """The open round can't keep its workers, as was thought."""


@dataclass(frozen=True)
class Close:
    """All are there: the open round has these members."""

    members: tuple[int, ...]


Change = Open | Restart | Close


def next_change(
    now: datetime, rounds: Sequence[Round], members: Sequence[Member], least: int, keeps_memory: bool
) -> Change | None:
    """What has to change about an attempt's rounds now, if anything.

    Args:
        now: the database's clock.
        rounds: the last two, in order; all but the last one are closed.
        members: all learners of the attempt that ever were.
        least: with fewer members training can't go on.
        keeps_memory: whether workers survive a change of the gang (Horovod's do).
    """
    newest = rounds[-1] if rounds else None
    if newest is None:
        return Open(True, "") if any(one.arrived for one in members if not one.left) else None
    if newest.open:
        return _close(now, newest, rounds[-2] if len(rounds) > 1 else None, members, least)
    return _open(now, newest, members, keeps_memory)


def is_over(last: Round | None, members: Sequence[Member]) -> bool:
    """Whether the leader has finished training: nobody goes into another round.

    Args:
        last: the last closed round.
        members: of the attempt.
    """
    return last is not None and any(one.finished for one in members if one.number == last.members[0])


def _open(now: datetime, last: Round, members: Sequence[Member], keeps_memory: bool) -> Open | None:
    if is_over(last, members):
        return None
    inside = [one for one in members if one.number in last.members]
    gone = [one for one in inside if one.left]
    broken = [one for one in inside if not one.left and one.broken == last.n]
    if gone:
        restart = not keeps_memory or bool(broken) or gone[0].number == last.members[0]
        return Open(restart, _lost(gone))
    if broken:
        # Perhaps they only noticed late that a peer was lost; else the workers' judge says who is to blame.
        after_loss = not last.restart and now - last.opened_at < AFTERMATH
        return Open(True, last.reason) if after_loss else None
    joining = [
        one for one in members if not one.left and one.number not in last.members and (one.arrived or 0) > last.n
    ]
    if not joining or any(one.finished for one in inside):
        return None
    first = min(one.arrived_at or now for one in joining)
    starting = any(one.started and one.arrived is None and not one.left for one in members)
    if starting and now - first < JOIN_WAIT:
        return None
    return Open(not keeps_memory, f"{_names(joining)} joined")


def _close(
    now: datetime, newest: Round, last: Round | None, members: Sequence[Member], least: int
) -> Restart | Close | None:
    living = [one for one in members if not one.left]
    if last is not None and not newest.restart:
        led = any(one.number == last.members[0] for one in living)
        if not led or any(one.broken == last.n for one in living):
            return Restart()
    if is_over(last, members):
        return None
    needed = [one for one in living if not one.finished]
    if last is not None or now - newest.opened_at > START_WAIT:
        needed = [one for one in needed if one.arrived is not None]
    ready = [one for one in needed if (one.arrived or 0) >= newest.n]
    finished = sum(one.finished for one in living)
    if not ready or len(ready) < len(needed) or len(ready) + finished < least:
        return None
    return Close(tuple(sorted(one.number for one in ready)))


def _lost(gone: Sequence[Member]) -> str:
    whys = {one.left_reason for one in gone}
    why = f" ({whys.pop()})" if len(whys) == 1 and all(whys) else ""
    return f"{_names(gone)} {'was' if len(gone) == 1 else 'were'} lost{why}"


def _names(members: Sequence[Member]) -> str:
    numbers = [str(one.number + 1) for one in members]
    if len(numbers) == 1:
        return f"learner {numbers[0]}"
    return f"learners {', '.join(numbers[:-1])} and {numbers[-1]}"
