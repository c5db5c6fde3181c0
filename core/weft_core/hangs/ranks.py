"""The ranks of a gang, from the reports of its learners' agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft_core.hangs.places import UNKNOWN, Place, find_place
from weft_core.hangs.report import Collective, Process, Report

DEFAULT_GROUP = "0"
_MOST_RANKS = 4096
"""A report may claim any number."""


@dataclass(frozen=True)
class Rank:
    rank: int
    learner: int
    """The learner's own rank."""
    place: Place = UNKNOWN
    stopped: bool = False
    """Whether its process is stopped by a signal or a debugger."""
    waits_for_disk: bool = False
    ended: str = ""
    """How it has ended: 'exit code 0'; '': it runs, or nothing is known."""
    recorded: bool = False
    counted: bool = False
    """Whether its collectives are counted, so that a look shows each that it finishes."""
    still: bool = False
    """Whether several looks at its processes have shown the same."""
    cpu_percent: float = 0.0
    collectives: Sequence[Collective] = ()
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    missing: Sequence[str] = ()
    """The tensors of Horovod for which other ranks wait because this rank has not submitted them."""
    submitted: Sequence[str] | None = None
    """The tensors of Horovod for which this rank waits; None: unknown."""

    @property
    def waits(self) -> bool:
        """Whether it is in a collective, by its stack."""
        return self.place.kind == "collective"

    @property
    def flies(self) -> bool:
        """Whether it is in a collective, by its flight recorder."""
        return any(not entry.done for entry in self.collectives)

    @property
    def known(self) -> bool:
        return bool(self.ended) or self.stopped or self.place.kind != "unknown"

    def newest(self, group: str) -> int:
        """The number of the last collective of a group that it has entered."""
        return max((entry.number for entry in self.collectives if entry.group == group), default=0)

    def flying(self, group: str) -> int | None:
        """The number of the first collective of a group that it has entered and not left."""
        return min(
            (entry.number for entry in self.collectives if entry.group == group and not entry.done), default=None
        )

    def entry(self, group: str, number: int) -> Collective | None:
        return next((entry for entry in self.collectives if (entry.group, entry.number) == (group, number)), None)


def read_ranks(reports: Mapping[int, Report | None], ended: Mapping[int, str]) -> list[Rank]:
    """
    Args:
        reports: by learner; None: its agent has reported nothing.
        ended: the learners whose program has ended, and how.
    """
    found: dict[int, Rank] = {}
    world = len(reports)
    for learner, report in sorted(reports.items()):
        processes = report.processes if report else []
        if not any(process.rank is not None for process in processes):
            processes = [process.model_copy(update={"rank": learner}) for process in processes]
        world = max([world, *(min(process.world or 0, _MOST_RANKS) for process in processes)])
        for rank in sorted({process.rank for process in processes if process.rank is not None}):
            found.setdefault(rank, _read(rank, learner, [process for process in processes if process.rank == rank]))
    slots = max(1, world // max(1, len(reports)))
    for rank in range(min(world, slots * len(reports))):
        learner = rank // slots
        if rank in found and learner not in ended:
            continue
        gone = "its process is gone" if rank not in found and reports.get(learner) and slots > 1 else ""
        found[rank] = Rank(rank, learner, ended=ended.get(learner, gone))
    logged = {rank: names for report in reports.values() if report for rank, names in report.missing.items()}
    ranks = [replace(found[rank], missing=logged.get(rank, ())) for rank in sorted(found)]
    return ranks if logged else _without_tensors(ranks)


def _without_tensors(ranks: Sequence[Rank]) -> list[Rank]:
    """The ranks with the tensors that they have not submitted, by what all ranks have submitted. A rank for which that
    is unknown has submitted nothing, unless it is in a collective."""
    wanted = list(dict.fromkeys(name for rank in ranks for name in rank.submitted or ()))
    return [
        rank
        if rank.submitted is None and rank.waits
        else replace(rank, missing=[name for name in wanted if name not in (rank.submitted or ())])
        for rank in ranks
    ]


def _read(rank: int, learner: int, processes: Sequence[Process]) -> Rank:
    """Shells and other parents have no stack of Python; the first process that has is the rank's program."""
    main = next((process for process in processes if process.threads or process.recorded), processes[0])
    helpers = [process for process in processes if process.pid != main.pid]
    return Rank(
        rank,
        learner,
        find_place(main, helpers),
        stopped=any(process.state in ("stopped", "tracing-stop") for process in processes),
        waits_for_disk=main.state == "disk-sleep",
        recorded=main.recorded,
        counted=main.recorded or main.finished is not None,
        submitted=main.submitted,
        still=all(process.still for process in processes),
        cpu_percent=sum(process.cpu_percent for process in processes),
        collectives=main.collectives,
        groups=main.groups,
    )
