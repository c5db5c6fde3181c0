"""The running jobs that have to make room for a job that waits: a pure function.

A job within its project's guarantee takes back what other projects have borrowed. If the settings say so, a job also
takes the room of jobs of a lower priority within its project. Of those, the ones with the least unsaved work go, and no
more than necessary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from weft_workers.rooms import Request, Room, Running
from weft_workers.shares import Share

Mode = Literal["off", "guaranteed", "priority"]


def victims(
    rooms: Sequence[Room],
    held: Sequence[Sequence[str]],
    running: Sequence[Running],
    request: Request,
    shares: Mapping[str, Share],
    mode: Mode,
) -> list[Running] | None:
    """The attempts to stop so that ``request`` fits, once they and those that are ending are gone.

    Args:
        rooms: what is free now.
        held: the nodes of each running attempt, as :func:`weft_workers.rooms.occupy` returns them.
        request: the first job of the queue that does not fit.
        shares: by project; without one, nothing is guaranteed to a project.

    Returns:
        Empty: no attempt needs to stop, as those that are ending leave enough room. None: no attempt may be stopped, or
            that would not help.
    """
    trial = _Trial(rooms, request)
    left = {project: replace(share) for project, share in shares.items()}  # what projects hold without the victims
    for attempt, nodes in zip(running, held, strict=True):
        if attempt.ending:
            trial.give_back(attempt, nodes)
            if attempt.project in left:
                left[attempt.project].take(attempt, -attempt.learners)
    if trial.fits:
        return []
    own = shares.get(request.project)
    reclaims = mode != "off" and own is not None and own.covers(request)
    if not reclaims and mode != "priority":
        return None
    chosen: list[tuple[Running, Sequence[str]]] = []
    able = [(attempt, nodes) for attempt, nodes in zip(running, held, strict=True) if not attempt.ending]
    for attempt, nodes in sorted(able, key=lambda item: item[0].unsaved):
        share = left.get(attempt.project)
        if attempt.project == request.project:
            allowed = mode == "priority" and attempt.priority < request.priority
        else:
            allowed = reclaims and not (share is not None and share.covers(attempt, held=True))
        if not allowed:
            continue
        chosen.append((attempt, nodes))
        trial.give_back(attempt, nodes)
        if share is not None:
            share.take(attempt, -attempt.learners)
        if trial.fits:
            break
    if not trial.fits:
        return None
    # Several small gangs may have been chosen before the one whose room is needed.
    needed = []
    for attempt, nodes in reversed(chosen):
        trial.give_back(attempt, nodes, -1)
        if not trial.fits:
            trial.give_back(attempt, nodes)
            needed.append(attempt)
    return needed[::-1]


class _Trial:
    """Rooms in which attempts are tentatively gone."""

    def __init__(self, rooms: Sequence[Room], request: Request) -> None:
        self._rooms = {room.node.name: room.copy() for room in rooms}
        self._request = request
        self._slots = {name: room.slots(request) for name, room in self._rooms.items()}
        self._total = sum(self._slots.values())

    @property
    def fits(self) -> bool:
        return self._total >= self._request.learners

    def give_back(self, attempt: Running, nodes: Sequence[str], sign: int = 1) -> None:
        for name in nodes:
            self._rooms[name].give(attempt.each, -sign)
        for name in set(nodes):
            slots = self._rooms[name].slots(self._request)
            self._total += slots - self._slots[name]
            self._slots[name] = slots
