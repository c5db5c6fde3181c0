"""Log lines."""

from __future__ import annotations

from dataclasses import dataclass

from weft.models.base import Json, ServerValue


@dataclass(frozen=True)
class LogLine(ServerValue):
    """One line of a learner's output. ``n`` is its place in the job's log, ``t`` milliseconds since the epoch by the
    learner's clock, ``learner`` counts from 1."""

    n: int
    t: int
    attempt: int
    learner: int
    text: str

    @classmethod
    def from_json(cls, data: Json) -> LogLine:
        return cls(
            n=int(data["n"]),
            t=int(data.get("t") or 0),
            attempt=int(data.get("attempt") or 0),
            learner=int(data.get("learner") or 0),
            text=str(data.get("text") or ""),
            raw=data,
        )


@dataclass(frozen=True)
class LogMatch(ServerValue):
    """A matching line, the lines around it, and the matching parts of its text: (begin, end) in characters."""

    line: LogLine
    before: tuple[LogLine, ...] = ()
    after: tuple[LogLine, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> LogMatch:
        return cls(
            line=LogLine.from_json(data["line"]),
            before=tuple(LogLine.from_json(line) for line in data.get("before") or ()),
            after=tuple(LogLine.from_json(line) for line in data.get("after") or ()),
            spans=tuple((int(begin), int(end)) for begin, end in data.get("spans") or ()),
            raw=data,
        )


@dataclass(frozen=True)
class Gap(ServerValue):
    """Stands in a followed log for the lines from number ``first`` to number ``last``, which came faster than they were
    taken; those of other learners count in ``lines``."""

    first: int
    last: int
    lines: int

    @classmethod
    def from_json(cls, data: Json) -> Gap:
        return cls(first=int(data["from"]), last=int(data["to"]), lines=int(data["lines"]), raw=data)
