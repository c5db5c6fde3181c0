"""The verdict on a gang that makes no progress: which ranks wait, in which collective, and which ranks are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from weft_core.hangs.ranks import DEFAULT_GROUP, Rank, read_ranks
from weft_core.hangs.report import Report

_SAME_SHAPES = ("all_reduce", "broadcast", "reduce", "allreduce")
"""Collectives for which all ranks must give tensors of the same shape."""
_MOST_RANKS = 64
_MOST_PARTS = 4
_MOST_NAMES = 2
"""Of tensors."""


@dataclass(frozen=True)
class Verdict:
    text: str
    """One sentence: 'rank 3 has not entered all_reduce #1204 (train.py:88): it is in …; ranks 0 to 2 wait for it'."""
    blamed: Sequence[int] = ()
    """The ranks for which the others wait; none: all wait alike."""
    waiting: Sequence[int] = ()
    collective: Mapping[str, Any] | None = None
    """The operation, its number and its process group, as far as they are known."""
    ranks: Sequence[Mapping[str, Any]] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        """For the event of the job."""
        return {
            "verdict": self.text,
            "blamed": list(self.blamed[:_MOST_RANKS]),
            "waiting": list(self.waiting[:_MOST_RANKS]),
            "collective": self.collective,
            "ranks": list(self.ranks),
        }


def judge(reports: Mapping[int, Report | None], ended: Mapping[int, str]) -> Verdict | None:
    """The verdict; None: the reports show too little.

    Args:
        reports: of each learner; None: its agent has reported nothing.
        ended: the learners whose program has ended, and how: 'exit code 0'.
    """
    ranks = read_ranks(reports, ended)
    if not any(rank.known and not rank.ended for rank in ranks):
        return None
    found = _by_state(ranks) or _by_recorder(ranks) or _by_tensors(ranks) or _by_stacks(ranks)
    return Verdict(found.text, found.blamed, found.waiting, found.collective, [_facts(rank) for rank in ranks[:64]])


# --- processes that can't run --------------------------------------------------------------------------------------


def _by_state(ranks: Sequence[Rank]) -> Verdict | None:
    stopped = [rank for rank in ranks if rank.stopped]
    if not stopped or len(stopped) == len(ranks):
        return Verdict(f"{_all(ranks)} {_are(ranks)} stopped by a signal (SIGSTOP)", _ids(stopped)) if stopped else None
    waiting = [rank for rank in ranks if rank.waits]
    text = f"{_names(stopped)} {_are(stopped)} stopped by a signal (SIGSTOP){_in_places(stopped)}"
    return _blame(text, stopped, [rank for rank in waiting if not rank.stopped])


# --- PyTorch's flight recorder ----------------------------------------------------------------------------------------


def _by_recorder(ranks: Sequence[Rank]) -> Verdict | None:
    """Compare how many collectives each rank has entered."""
    names = {entry.group for rank in ranks for entry in rank.collectives if not entry.done}
    verdicts = [verdict for name in sorted(names) if (verdict := _judge_group(name, ranks)) is not None]
    if not verdicts:
        return None
    # Where ranks wait in several groups, the rank that waits in none of them is the cause.
    flying = [rank for rank in ranks if rank.flies]
    culprits = [verdict for verdict in verdicts if not set(_ids(flying)) & set(verdict.blamed)]
    if culprits or len(verdicts) == 1:
        return (culprits or verdicts)[0]
    parts = [f"{_names([rank])} in {_where_it_flies(rank)}" for rank in flying[:_MOST_PARTS]]
    return Verdict(f"the ranks wait for each other in different groups: {', '.join(parts)}", (), _ids(flying))


def _judge_group(group: str, ranks: Sequence[Rank]) -> Verdict | None:
    members = _members(group, ranks)
    flights = {rank.rank: number for rank in members if (number := rank.flying(group)) is not None}
    if not flights:  # the group's own ranks, as some report names them, are others
        return None
    first = min(flights, key=lambda rank: flights[rank])
    number = flights[first]
    missing = [rank for rank in members if rank.newest(group) < number and not (not rank.recorded and rank.waits)]
    waiting = [rank for rank in members if rank.rank in flights]
    entries = {rank.rank: entry for rank in members if (entry := rank.entry(group, number)) is not None}
    operation = entries[first].operation
    facts = {"operation": operation, "number": number, "group": group}
    title = f"{operation} #{number}{'' if group == DEFAULT_GROUP else f' of group {group}'}"
    if missing:
        return _missing(title, missing, waiting, facts, _where_it_flies)
    operations: dict[str, list[Rank]] = {}
    shapes: dict[str, list[Rank]] = {}
    for rank in members:
        if (entry := entries.get(rank.rank)) is not None:
            operations.setdefault(entry.operation, []).append(rank)
            shapes.setdefault(entry.shapes, []).append(rank)
    if len(operations) > 1:
        return _differ("operations", f"collective #{number}", operations, facts, waiting)
    if len(shapes) > 1 and operation in _SAME_SHAPES:
        return _differ("shapes", title, shapes, facts, waiting)
    away = [rank for rank in members if rank not in waiting]
    if away:
        text = f"{_names(waiting)} {_wait(waiting)} in {title}{_at(waiting)}, which {_names(away)} {_have(away)} left"
        return Verdict(f"{text}: {_is_where(away)}", _ids(away), _ids(waiting), facts)
    text = f"{_all(members)} {_wait(members)} in {title}{_at(members)}, and none of them is missing"
    return Verdict(f"{text}: the connection between them may be lost", (), _ids(members), facts)


def _members(group: str, ranks: Sequence[Rank]) -> list[Rank]:
    named = next((set(rank.groups[group]) for rank in ranks if group in rank.groups), None)
    if named is None and group != DEFAULT_GROUP:
        named = {rank.rank for rank in ranks if rank.newest(group)}
    return [rank for rank in ranks if named is None or rank.rank in named]


def _where_it_flies(rank: Rank) -> str:
    """A rank that waits in another collective, with its number."""
    entry = next((entry for entry in rank.collectives if not entry.done), None)
    if entry is None:
        return str(rank.place)
    group = "" if entry.group == DEFAULT_GROUP else f" of group {entry.group}"
    return f"{entry.operation} #{entry.number}{group}{_at([rank])}"


def _differ(
    what: str, title: str, kinds: Mapping[str, Sequence[Rank]], facts: Mapping[str, Any], waiting: Sequence[Rank]
) -> Verdict:
    """The ranks disagree; the smaller part is blamed. Ranks that have left the collective are elsewhere by now."""
    ordered = sorted(kinds.items(), key=lambda kind: len(kind[1]))
    parts = [
        f"{_names(some)} {_have(some)} {kind or 'none'}{_at([rank for rank in some if rank in waiting])}"
        for kind, some in ordered[:_MOST_PARTS]
    ]
    blamed = ordered[0][1] if len(ordered[0][1]) < len(ordered[-1][1]) else []
    waiting = [rank for rank in waiting if rank not in blamed]
    text = f"the ranks disagree about {title}, and have different {what}: {', '.join(parts)}"
    return Verdict(text, _ids(blamed), _ids(waiting), facts)


# --- Horovod's tensors ------------------------------------------------------------------------------------------------


def _by_tensors(ranks: Sequence[Rank]) -> Verdict | None:
    """Compare which tensors each rank has not submitted."""
    missing = [rank for rank in ranks if rank.missing]
    waiting = [rank for rank in ranks if not rank.missing]
    tensors = list(dict.fromkeys(tensor for rank in missing for tensor in rank.missing))
    if not missing:
        return None
    if waiting:
        operation = next((rank.place.what for rank in waiting if rank.waits), "")
        names = _tensors(tensors, operation)
        facts = {"operation": operation or names, "tensors": tensors}
        return _missing(f"{operation} of {names}" if operation else names, missing, waiting, facts, _where)
    kinds: dict[tuple[str, ...], list[Rank]] = {}
    for rank in ranks:
        kinds.setdefault(tuple(rank.missing), []).append(rank)
    ordered = sorted(kinds.items(), key=lambda kind: len(kind[1]))
    parts = [
        f"{_names(some)} {_have(some)} not submitted {_tensors(kind)}: {_is_where(some)}"
        for kind, some in ordered[:_MOST_PARTS]
    ]
    blamed = ordered[0][1] if len(ordered[0][1]) < len(ordered[-1][1]) else []
    text = f"the ranks wait for each other with different tensors: {'; '.join(parts)}"
    others = [rank for rank in ranks if rank not in blamed]
    return Verdict(text, _ids(blamed), _ids(others), {"operation": _tensors(tensors), "tensors": tensors})


def _tensors(names: Sequence[str], operation: str = "") -> str:
    """'gradient' for 'allreduce.gradient' of hvd.allreduce."""
    some = [name.removeprefix(f"{operation.removeprefix('hvd.')}.") for name in names[:_MOST_NAMES]]
    return ", ".join(some) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


# --- stacks alone -----------------------------------------------------------------------------------------------------


def _by_stacks(ranks: Sequence[Rank]) -> Verdict:
    waiting = [rank for rank in ranks if rank.waits]
    if not waiting:  # steps and backward passes wait for others only if these are elsewhere
        waiting = [rank for rank in ranks if rank.place.kind in ("step", "backward")]
    others = [rank for rank in ranks if rank not in waiting]
    places: dict[str, list[Rank]] = {}
    for rank in waiting or ranks:
        places.setdefault(_where(rank), []).append(rank)
    if waiting and others:
        operation = max(places.values(), key=len)[0].place
        return _missing(operation.what, others, waiting, {"operation": operation.what}, _where)
    if len(places) == 1:
        return Verdict(f"{_all(ranks)} {_are(ranks)} in {next(iter(places))}", (), _ids(ranks))
    ordered = sorted(places.items(), key=lambda place: len(place[1]))
    parts = [f"{_names(some)} {_are(some)} in {where}" for where, some in ordered[:_MOST_PARTS]]
    blamed = ordered[0][1] if len(ordered[0][1]) < len(ordered[-1][1]) else []
    text = ("the ranks are in different collectives: " if waiting else "") + ", ".join(parts)
    return Verdict(text, _ids(blamed), _ids([rank for rank in ranks if rank not in blamed]))


# --- words ------------------------------------------------------------------------------------------------------------


def _missing(
    title: str,
    missing: Sequence[Rank],
    waiting: Sequence[Rank],
    facts: Mapping[str, Any],
    where: Callable[[Rank], str],
) -> Verdict:
    text = f"{_names(missing)} {_have(missing)} not entered {title}{_at(waiting)}: {_is_where(missing, where)}"
    return _blame(text, missing, waiting, facts)


def _blame(
    text: str, blamed: Sequence[Rank], waiting: Sequence[Rank], facts: Mapping[str, Any] | None = None
) -> Verdict:
    if waiting:
        text += f"; {_names(waiting)} {_wait(waiting)} for {'it' if len(blamed) == 1 else 'them'}"
    return Verdict(text, _ids(blamed), _ids(waiting), facts)


def _where(rank: Rank) -> str:
    return str(rank.place)


def _is_where(ranks: Sequence[Rank], where: Callable[[Rank], str] = _where) -> str:
    """'it is in DataLoader (data.py:41)', 'rank 2 has ended (exit code 0), rank 3 is in …'."""
    states: dict[str, list[Rank]] = {}
    for rank in ranks:
        states.setdefault(_state(rank, where), []).append(rank)
    if len(states) == 1:
        state = next(iter(states))
        return f"it {state}" if len(ranks) == 1 else f"each {state}"
    return ", ".join(f"{_names(some)} {state}" for state, some in list(states.items())[:_MOST_PARTS])


def _state(rank: Rank, where: Callable[[Rank], str]) -> str:
    if rank.ended:
        return f"has ended ({rank.ended})"
    if not rank.known:
        return "has reported nothing"
    return f"{'waits for a disk' if rank.waits_for_disk else 'is'} in {where(rank)}"


def _in_places(ranks: Sequence[Rank]) -> str:
    places = list(dict.fromkeys(str(rank.place) for rank in ranks if rank.place.kind != "unknown"))
    return f" in {' and '.join(places[:_MOST_PARTS])}" if places else ""


def _at(ranks: Sequence[Rank]) -> str:
    """The line of the user's code at which these ranks are, if it is the same."""
    lines = {rank.place.at for rank in ranks if rank.place.at}
    return f" ({lines.pop()})" if len(lines) == 1 else ""


def _all(ranks: Sequence[Rank]) -> str:
    return "all ranks" if len(ranks) > 1 else "the program"


def _names(ranks: Sequence[Rank]) -> str:
    """'rank 3', 'ranks 0 to 2', 'ranks 0, 1 and 3'."""
    ids = _ids(ranks)
    spans: list[str] = []
    for _, run in groupby(enumerate(ids), key=lambda pair: pair[1] - pair[0]):
        span = [rank for _, rank in run]
        spans += [f"{span[0]} to {span[-1]}"] if len(span) > 2 else map(str, span)
    more = spans[_MOST_RANKS:]
    spans = spans[:_MOST_RANKS] + (["more"] if more else [])
    listed = spans[0] if len(spans) == 1 else f"{', '.join(spans[:-1])} and {spans[-1]}"
    return f"rank{'' if len(ids) == 1 else 's'} {listed}"


def _are(ranks: Sequence[Rank]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _have(ranks: Sequence[Rank]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _wait(ranks: Sequence[Rank]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _ids(ranks: Sequence[Rank]) -> list[int]:
    return sorted(rank.rank for rank in ranks)


def _facts(rank: Rank) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "learner": rank.learner + 1,
        "state": rank.ended or ("stopped" if rank.stopped else "running" if rank.known else "unknown"),
        "in": rank.place.what,
        "at": rank.place.at,
    }
