"""``projects retention``: how long a project keeps the data of its ended jobs."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from weft.commands.common import JsonOption, client_of
from weft.models import Retention
from weft.ui.console import show, show_json
from weft.ui.jobs import table
from weft.ui.times import ago
from weft.words import count, size

_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_NEVER, _DEFAULT = "none", "default"
_WANTED = "an age such as 30d, a size such as 10GiB, both (30d,10GiB), none, or default"
_DAYS = "an age such as 30d, none, or default"


def retention(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="PROJECT", show_default=False)],
    logs: Annotated[
        str | None, typer.Option(metavar="30d|10GiB|none|default", help="Logs.", show_default=False)
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="90d|10GiB|none|default", help="Metrics, but for newest and best values.", show_default=False
        ),
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            metavar="90d|1TiB|none|default",
            help="Results and checkpoints in the server's own store, but for versions of models.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        str | None, typer.Option(metavar="365d|none|default", help="Events of jobs.", show_default=False)
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(metavar="30d|none|default", help="Code that no job and no model uses.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show or change how long a project keeps the data of its ended jobs (owners, administrators).

    The server removes older data, and the oldest data beyond a size, for good. `none` keeps all;
    `default` is the installation's setting.
    """
    projects = client_of(ctx).projects
    found = projects.retention(name)
    asked = {"logs": logs, "metrics": metrics, "results": results, "events": events, "code": code}
    changes = {kind: _keep(kind, text) for kind, text in asked.items() if text is not None}
    if changes:
        found = projects.set_retention(name, {**found.own, **changes})
    if as_json:
        show_json(dict(found.raw))
        return
    made = table("", "KEPT FOR", "UP TO", "HELD", "REMOVED SO FAR", "SETTING")
    for kind in Retention.KINDS:
        kept = found.raw[kind]
        removed = ""
        if kept["removed"]:
            noun = "bundle" if kind == "code" else "job"
            what = f"of {count(kept['removed'], noun)}" if kind != "code" else count(kept["removed"], noun)
            freed = f", {size(kept['removed_bytes'])}" if kept["removed_bytes"] else ""
            removed = f"{what}{freed}, {ago(found.removed_at(kind))}"
        made.add_row(
            kind,
            "ever" if kept["days"] is None else count(kept["days"], "day"),
            "any size" if kept["bytes"] is None else size(kept["bytes"]),
            "" if kept["held"] is None else size(kept["held"]),
            removed,
            "the project's" if kept["own"] else "the installation's",
        )
    show(made)


def _keep(kind: str, text: str) -> dict[str, int | None] | None:
    """The API's value for a kind; None: the installation's setting."""
    words = [word.strip().lower() for word in text.split(",")]
    if words == [_DEFAULT]:
        return None
    keep: dict[str, int | None] = {}
    for word in words if words != [_NEVER] else []:
        days, amount = re.fullmatch(r"(\d+)\s*d(?:ays?)?", word), re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", word)
        if days and "days" not in keep:
            keep["days"] = int(days[1])
        elif amount and kind in Retention.SIZED and "bytes" not in keep and amount[2] in _UNITS:
            keep["bytes"] = int(float(amount[1]) * _UNITS[amount[2]])
        else:
            wanted = _WANTED if kind in Retention.SIZED else _DAYS
            raise typer.BadParameter(f"{text!r} is not {wanted}", param_hint=f"--{kind}")
    return keep
