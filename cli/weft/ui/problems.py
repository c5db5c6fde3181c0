"""The faults of a manifest, each with its line quoted from the file on this machine and underlined."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from weft.models import Problem
from weft.ui.console import err, say

# A value that may hold a credential is not shown again, not even to its author: terminals get shared and recorded.
_SECRET = re.compile(
    r"pass(word|wd|phrase)?|secret|token|credential|user_?name|access_?key|api_?key|auth|connection|\benv\b|url",
    re.IGNORECASE,
)
_WIDEST = 100


def explain(name: str, text: str, problems: Sequence[Problem], detail: str) -> None:
    """Print the problems of the manifest ``name`` to stderr. Its lines are quoted if its ``text`` is given."""
    if not problems:
        say(f"[bold red]✗[/] {escape(name)} is not valid: {escape(detail)}")
        return
    lines = text.splitlines()
    number = f"{len(problems)} problem" + ("" if len(problems) == 1 else "s")
    say(f"[bold red]✗[/] [bold]{escape(name)}[/] is not valid: {number}")
    for problem in sorted(problems, key=lambda problem: problem.line or 0):
        _one(name, lines, problem)


def _one(name: str, lines: Sequence[str], problem: Problem) -> None:
    where = f"{name}:{problem.line}" if problem.line and lines else name
    path = f"[bold]{escape(problem.path)}[/]: " if problem.path else ""
    say()
    _indented(f"[key]{escape(where)}[/] {path}{escape(problem.message)}", 2)
    if problem.line and 0 < problem.line <= len(lines):
        for row in quote(lines[problem.line - 1], problem):
            margin = f"{problem.line:>5}" if row.startswith("│ ") else " " * 5
            say(f"  [key]{margin}[/] {_coloured(row)}")
    if problem.accepted and problem.accepted not in problem.message:
        _indented(f"[key]accepted:[/] {escape(problem.accepted)}", 8)


def _indented(markup: str, indent: int) -> None:
    err().print(Padding(Text.from_markup(markup), (0, 0, 0, indent), expand=False))


def _coloured(row: str) -> str:
    return f"[key]│[/] {escape(row[2:])}" if row.startswith("│ ") else f"  [red]{escape(row[2:])}[/]"


def quote(line: str, problem: Problem) -> list[str]:
    """The manifest's line, with an underline if there is something to underline. Of credentials, only the key is
    shown."""
    line = line.expandtabs(4).rstrip()
    span = _span(line, problem)
    if _SECRET.search(problem.path) or _SECRET.search(line):
        key = re.match(r"[\s-]*([\w.-]+)\s*:", line)
        if key is None:
            return []
        line = key[0] + " …"
        span = key.span(1)
    if len(line) > _WIDEST:
        line = line[: _WIDEST - 1] + "…"
    quoted = ["│ " + line]
    if span and span[0] < len(line):
        start, end = span[0], min(span[1], len(line))
        quoted.append("  " + " " * start + "^" * (end - start))
    return quoted


def _span(line: str, problem: Problem) -> tuple[int, int] | None:
    """The text to underline: the value, or else the last key of the path."""
    key = re.sub(r"\[\d+\]$", "", problem.path).rpartition(".")[2]
    match = re.search(rf"(?<![\w-]){re.escape(key)}(?=\s*:)", line) if key else None
    found = (problem.found or "").strip("'\"")
    if found and (at := line.find(found, match.end() if match else 0)) >= 0:
        return at, at + len(found)
    return match.span() if match else None
