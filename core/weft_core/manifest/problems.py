"""The problems of a manifest, all at once: the place, the value found there, and the accepted values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_PROBLEMS = 50
"""The most problems that are reported at once; further ones show when these are corrected."""


@dataclass(frozen=True)
class Problem:
    """One mistake. ``message`` is a whole sentence by itself; ``line`` is None for what came with ``--set``."""

    path: str
    message: str
    line: int | None = None
    found: str | None = None
    """The value found there, shortened; None: it could be a credential."""
    accepted: str | None = None
    column: int | None = None
    """The column, from 1."""

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line is not None else []
        return ": ".join([", ".join([*where, *([self.path] if self.path else [])]), self.message]).removeprefix(": ")


class ManifestError(Exception):
    """A manifest that can't be taken, with everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        every = sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))
        self.problems = every[:MOST_PROBLEMS]
        if len(every) > MOST_PROBLEMS:
            self.problems.append(Problem("", f"and {len(every) - MOST_PROBLEMS} more problems"))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def did_you_mean(word: str, accepted: Sequence[str]) -> str:
    """``: did you mean 'learners'?`` when something accepted is close to ``word``, else nothing."""
    folded = {known.lower(): known for known in accepted}
    wanted = word.lower()[:80]
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    if not close and len(wanted) > 2:
        close = [known for known in folded if known.startswith(wanted)]
    return f": did you mean {folded[close[0]]!r}?" if close else ""


def one_of(accepted: Iterable[str]) -> str:
    """``one of: a, b, c``."""
    return "one of: " + ", ".join(accepted)
