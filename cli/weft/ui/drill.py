"""The result of a drill in a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from weft.drill.report import facts, headline, sections
from weft.drill.run import Result
from weft.ui.jobs import table

_MARKS = {"survives": ("✓", "bold green"), "differs": ("✗", "bold red"), "unproven": ("?", "bold yellow")}


def drill_panel(result: Result) -> RenderableType:
    """The tables, the verdict, and for each cause the lines that the program lacks."""
    found = result.comparison
    parts: list[RenderableType] = []
    for section in sections(found):
        made = table(*section.columns, numbers=section.numbers)
        for row in section.rows:
            made.add_row(*row)
        parts += [made, ""]
    mark, style = _MARKS[found.verdict]
    parts.append(Text.assemble((f"{mark} {headline(found)}", style)))
    parts += [Text(fact, style="dim") for fact in facts(found)]
    for cause in found.causes:
        parts += ["", Text.assemble((cause.title, "bold"), "" if cause.sure else (" (possible)", "dim"))]
        parts.append(Padding(Text(cause.evidence), (0, 0, 0, 2), expand=False))
        if code := cause.lines(result.undisturbed.framework.name):
            parts.append(Padding(Text(code, style="cyan"), (0, 0, 0, 4), expand=False))
    return Group(*parts)
