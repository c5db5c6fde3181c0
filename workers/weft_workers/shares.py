"""Fair share among projects, while a queue is planned: whose job is considered next.

A project's turn comes when it has the smallest claim so far: the resources that it has held on average in the past,
holds now, and has got or been promised before in this plan, divided by its weight. Jobs within the guarantee of their
project come before all others. Within a project, the order of the queue stays: priority, then age.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from weft_core.launch import Resources
from weft_core.store.quotas import Quota, Usage
from weft_workers.rooms import Request

_SLACK = 1e-6  # fractions of CPUs don't add up exactly
_NOTHING = Quota()


class Gang(Protocol):
    """A request or a running attempt."""

    @property
    def learners(self) -> int: ...

    @property
    def each(self) -> Resources: ...


@dataclass
class Share:
    """Of one project; changed as its jobs are planned."""

    project: str
    weight: float = 1.0
    average: float = 0.0
    """CPUs that it has held on average in the past, with GPUs converted (weft_core.store.shares)."""
    used: Usage = field(default_factory=Usage)
    """The resources that its jobs hold."""
    guaranteed: Quota = field(default_factory=Quota)
    gpu_weight: float = 16.0

    @property
    def claim(self) -> float:
        """The project with the smallest claim is next."""
        return (self.average + self.used.cpus + self.gpu_weight * self.used.gpus) / self.weight

    def covers(self, gang: Gang, held: bool = False) -> bool:
        """Whether a gang is within the guarantee: it asks for something that is guaranteed, and with it, the project
        holds no more of that than its guarantee.

        Args:
            held: the gang is among what the project holds already.
        """
        if self.guaranteed == _NOTHING:
            return False
        after = self.used if held else self.used.plus(gang.each, gang.learners)
        named = [
            (limit, total)
            for limit, total, asked in (
                (self.guaranteed.cpus, after.cpus, gang.each.cpus),
                (self.guaranteed.gpus, after.gpus, gang.each.gpus),
                (self.guaranteed.memory, after.memory, gang.each.memory),
            )
            if limit is not None and asked > 0
        ]
        return bool(named) and all(total <= limit + _SLACK for limit, total in named)

    def take(self, gang: Gang, learners: int) -> None:
        """Count learners of a gang as held; a negative number: as given back."""
        self.used = self.used.plus(gang.each, learners, 1 if learners > 0 else -1)


class Turns:
    """The queue in the order in which its jobs are considered. The caller records in the share what each job takes
    before it asks for the next job."""

    def __init__(self, queue: Sequence[Request], shares: Mapping[str, Share]) -> None:
        self._queue = queue
        self._shares = shares

    def __iter__(self) -> Iterator[Request]:
        lanes: dict[str, deque[tuple[int, Request]]] = defaultdict(deque)
        for index, request in enumerate(self._queue):
            lanes[request.project].append((index, request))
        if len(lanes) < 2:
            yield from self._queue
            return
        heap = [(*self._key(project, lane), project) for project, lane in lanes.items()]
        heapq.heapify(heap)
        while heap:
            project = heapq.heappop(heap)[-1]
            lane = lanes[project]
            yield lane.popleft()[1]
            if lane:
                heapq.heappush(heap, (*self._key(project, lane), project))

    def _key(self, project: str, lane: Sequence[tuple[int, Request]]) -> tuple[bool, float, int]:
        index, first = lane[0]
        share = self._shares.get(project) or Share(project)
        return not share.covers(first.smallest), share.claim, index


def describe(share: Share, shares: Mapping[str, Share]) -> str:
    """How much a project has used beside its share, in words; '' while nobody has used anything."""
    used, weights = sum(share.average for share in shares.values()), sum(share.weight for share in shares.values())
    if used <= 0 or len(shares) < 2:
        return ""
    return (
        f"project {share.project} has used {100 * share.average / used:.0f}% of late, "
        f"its share is {100 * share.weight / weights:.0f}%"
    )
