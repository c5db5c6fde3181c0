"""The process that tries a manifest's regular expressions on the log (``regex_extractor``).

An expression may take for ever on a line that it was not meant for. Therefore this is a process of its own, in which a
signal ends an attempt after so much processor time. Standard input has a JSON object with the expressions, and then the
lines, ``[ms, source, text]``. Standard output has a JSON object for each record and for each message to the user.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections import defaultdict, deque
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from weft_trainer.metrics.values import convert, types_of_texts

_SECONDS = 0.25
"""Seconds of processor time, for one expression on one line and the lines before it."""
_STRIKES = 3
"""An expression that has taken too long this often is not tried any more."""
_SOURCES = 1_000
_MACRO = re.compile(r"%\{(\w+)(?::(\w+))?\}")
_MACROS = {
    "GLOG_STAMP": r"[EFIW]?\d{4}\s+\d\d:\d\d:\d*\.\d+",
    "TIMESTAMP": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[-+]\d\d:?\d\d)?",
    "FLOAT": r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[nN]a[nN]|[iI]nf)",
    "INT": r"[-+]?\d+",
    "INT_ANY": r"[-+]?(?:0[xX][\dA-Fa-f]+|0[0-7]*|\d+)",
    "HEX": r"[-+]?(?:0[xX])?[\dA-Fa-f]+",
}
_GLOG = re.compile(r"[EFIW]?(\d\d)(\d\d)\s+(\d\d):(\d\d):(\d+)\.(\d+)")


class _TooLong(Exception):
    pass


def expand(regex: str) -> str:
    """Replaces ``%{FLOAT:loss}`` and ``%{FLOAT}`` by their expressions. Raises: KeyError, for an unknown macro."""
    return _MACRO.sub(lambda macro: f"(?P<{macro[2]}>{_MACROS[macro[1]]})" if macro[2] else _MACROS[macro[1]], regex)


class _Group:
    def __init__(self, label: str, form: Mapping[str, Any]) -> None:
        self.label = label
        self.form = form
        self.regex = re.compile(expand(form["regex"]), re.MULTILINE | re.DOTALL)
        self.strikes = 0

    def record(self, match: re.Match[str], time: int) -> dict[str, Any] | None:
        stamp = _resolve(match, (self.form.get("meta") or {}).get("time") or "")
        values = self._values(match, "scalars")
        if not values:
            return None
        time = (_moment(stamp, time) if stamp else None) or time
        kinds = {
            name: field["type"] for part in ("etimes", "scalars") for name, field in (self.form.get(part) or {}).items()
        }
        types = types_of_texts(kinds)
        etimes = self._values(match, "etimes")
        return {"time": time, "group": self.label, "etimes": etimes, "values": values, "types": types}

    def _values(self, match: re.Match[str], kind: str) -> dict[str, Any]:
        found = {}
        for name, field in (self.form.get(kind) or {}).items():
            text = _resolve(match, field["value"])
            value = None if text is None else convert(text, field["type"])
            if value is not None:
                found[name] = value
        return found


def _resolve(match: re.Match[str], written: str) -> str | None:
    """The text of a group for ``$group``, else the constant itself."""
    if not written.startswith("$"):
        return written
    return match.groupdict().get(written[1:])


def _moment(stamp: str, fallback: int) -> int | None:
    """Milliseconds since the epoch. The stamp is one of glog (of this year), an ISO date, or a number; else None."""
    found = _GLOG.fullmatch(stamp.strip())
    try:
        if found:
            year = datetime.fromtimestamp(fallback / 1000).astimezone().year
            month, day, hour, minute, second = (int(digits) for digits in found.groups()[:5])
            fraction = int(found[6][:6].ljust(6, "0"))
            return int(datetime(year, month, day, hour, minute, second, fraction).astimezone().timestamp() * 1000)
        try:
            number = float(stamp)
        except ValueError:
            text = re.sub(r"([-+]\d\d)(\d\d)$", r"\1:\2", stamp.strip().replace(",", ".").replace("Z", "+00:00"))
            text = re.sub(r"\.(\d+)", lambda dot: "." + dot[1][:6].ljust(6, "0"), text)  # as Python 3.9 requires it
            when = datetime.fromisoformat(text)
            return int((when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() * 1000)
        return int(number if number > 1e11 else number * 1000)
    except (ValueError, OverflowError, OSError):
        return None


class Extractor:
    """Tries every expression on the last lines of each source, from the earliest line that can begin a match."""

    def __init__(self, lookahead: int, groups: Mapping[str, Mapping[str, Any]]) -> None:
        self._lookahead = lookahead
        self._groups = [_Group(label, form) for label, form in groups.items()]
        self._windows: defaultdict[str, deque[str]] = defaultdict(deque)
        self._told = False

    def feed(self, time: int, source: str, text: str) -> dict[str, Any] | None:
        """Take a line. Returns a record, a message to the user, or None."""
        if len(self._windows) > _SOURCES:
            self._windows.clear()
        window = self._windows[source]
        window.append(text + "\n")
        while len(window) > self._lookahead:
            window.popleft()
        for group in self._groups:
            try:
                match = self._try(group, window)
            except _TooLong:
                return self._strike(group)
            if match is not None:
                window.clear()
                return group.record(match, time)
        return None

    def _try(self, group: _Group, window: deque[str]) -> re.Match[str] | None:
        lines = list(window)
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        try:
            for start in range(len(lines)):
                match = group.regex.match("".join(lines[start:]))
                if match is not None:
                    return match
            return None
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _strike(self, group: _Group) -> dict[str, Any] | None:
        group.strikes += 1
        if group.strikes == 1:
            return {"say": f"the regular expression of group {group.label!r} takes too long on a line of this log"}
        if group.strikes < _STRIKES:
            return None
        self._groups.remove(group)
        return {"say": f"the regular expression of group {group.label!r} takes too long again and again: given up"}


def main() -> None:
    def too_long(*_: object) -> None:
        raise _TooLong

    signal.signal(signal.SIGVTALRM, too_long)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = json.loads(sys.stdin.readline())
    extractor = Extractor(task["lookahead"], task["groups"])
    for line in sys.stdin:
        try:
            answer = extractor.feed(*json.loads(line))
        except _TooLong:  # between a match and the timer's end
            continue
        if answer is not None:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
