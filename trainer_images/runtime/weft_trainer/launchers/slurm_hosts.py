"""Lists of host names in Slurm's notation: ``node[01-03,7],login``."""

from __future__ import annotations

import itertools
import re

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(hosts: str) -> list[str]:
    """The names in a list, in order. Raises: ValueError, with a message for the user."""
    if not re.fullmatch(rf"(?:{_PART.pattern}(?:,|$))*", hosts.strip()):
        raise ValueError(f"invalid list of hosts: {hosts}")
    return [name for part in _PART.findall(hosts.strip()) for name in _expand_part(part)]


def _expand_part(part: str) -> list[str]:
    pieces = re.split(r"\[([^\[\]]*)\]", part)  # text, ranges, text, …
    choices = [[piece] if at % 2 == 0 else _numbers(piece) for at, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _numbers(ranges: str) -> list[str]:
    found = []
    for item in ranges.split(","):
        match = _RANGE.fullmatch(item.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"invalid range of hosts: [{ranges}]")
        found += [f"{n:0{len(match[1])}}" for n in range(int(match[1]), int(match[2] or match[1]) + 1)]
    return found


def repeated(counts: list[int]) -> str:
    """Numbers of nodes one after the other, as in SLURM_TASKS_PER_NODE: ``2(x3),1``."""
    groups = [(count, len(list(group))) for count, group in itertools.groupby(counts)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)
