"""``loglines``, ``emetrics`` and ``logs --metrics``: FfDL's commands, with its flags and its output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from weft.commands.common import JobArgument, JsonOption, client_of
from weft.commands.following import interruptible
from weft.errors import Unavailable
from weft.resources.jobs import Job
from weft.ui.ansi import shown
from weft.ui.console import show_json_lines

app = typer.Typer()

_PAUSE = 2.0
_MANY = 1000

PageSize = Annotated[int, typer.Option("--pagesize", min=1, help="Maximum number of records.")]
Position = Annotated[int, typer.Option("--pos", help="Number of the first record, from 1. -1: the last page.")]
Since = Annotated[
    str, typer.Option("--since", help="Start of the output: ms since the epoch, an age (90s, 1h30m), or a date.")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has ended.")]


@app.command("loglines")
def loglines(
    ctx: typer.Context,
    job: JobArgument,
    pagesize: PageSize = 20,
    pos: Position = 0,
    since: Since = "",
    follow: Follow = False,
    as_json: JsonOption = False,
) -> None:
    """Print log lines with numbers and times, as FfDL did; `weft logs` shows more."""

    def line(entry: Mapping[str, Any]) -> str:
        return f"{entry['meta']['rindex']} {entry['meta']['time']} {_safe(entry['line'])}"

    _print(ctx, job, "loglines", (pagesize, pos, since), line, follow=follow, as_json=as_json)


@app.command("emetrics")
def emetrics(
    ctx: typer.Context,
    job: JobArgument,
    pagesize: PageSize = 20,
    pos: Position = 0,
    since: Since = "",
    follow: Follow = False,
    as_json: JsonOption = False,
) -> None:
    """Print evaluation metrics as they arrived, as FfDL did; `weft metrics` shows more."""

    def record(entry: Mapping[str, Any]) -> str:
        meta = entry["meta"]
        first = f"time: {meta['time']}, group-label: {_safe(entry['grouplabel'])}, training-id: {meta['training_id']}"
        return "\n".join([first, f"    etimes: {_values(entry['etimes'])}", f"    values: {_values(entry['values'])}"])

    _print(ctx, job, "emetrics", (pagesize, pos, since), record, follow=follow, as_json=as_json)


def _values(typed: dict[str, dict[str, str]]) -> str:
    return _safe("".join(f"{name}: {{{value['type']} {value['value']}}}, " for name, value in typed.items()))


def _safe(text: str) -> str:
    return shown(text, colours=False)


def _print(
    ctx: typer.Context,
    job: str,
    kind: str,
    page: tuple[int, int, str],
    text: Callable[[Mapping[str, Any]], str],
    *,
    follow: bool,
    as_json: bool,
) -> None:
    found = client_of(ctx).job(job)

    def work() -> None:
        for entry in _models(found, kind, *page, follow=follow):
            if as_json:
                show_json_lines([dict(entry)])
            else:
                print(text(entry), flush=True)

    interruptible(found, work)


def print_metrics(job: Job, *, follow: bool, as_json: bool) -> None:
    """FfDL's ``logs --metrics``: prints JSON, or text with ``follow`` and without ``as_json``."""
    for entry in _models(job, "emetrics", _MANY, 0, "", follow=follow):
        at = datetime.fromtimestamp(entry["meta"]["time"] / 1000, UTC)
        measured = {
            "type": entry["grouplabel"],
            "timestamp": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
            "iteration": int(entry["etimes"].get("iteration", {}).get("value", 0)),
            "Values": {name: _value(typed) for name, typed in entry["values"].items()},
        }
        if follow and not as_json:
            values = "".join(f"{name}: {value!s:<12}" for name, value in measured["Values"].items())
            print(
                _safe(
                    "Timestamp: {timestamp:<12} Type: {type:<8} Iteration: {iteration:<7}".format_map(measured) + values
                ),
                flush=True,
            )
        else:
            show_json_lines([measured])


def _value(typed: Mapping[str, str]) -> int | float | str:
    kind, value = typed["type"], typed["value"]
    if kind == "INT":
        return int(value)
    # JSON has no numbers for the other values.
    return float(value) if kind == "FLOAT" and value not in ("nan", "inf", "-inf") else value


def _models(job: Job, kind: str, size: int, pos: int, since: str, *, follow: bool) -> Iterator[Mapping[str, Any]]:
    """One page, and with ``follow`` the following records, until the job has ended.

    Each page begins after the number of the last record. FfDL used the time of the last record instead, and lost or
    repeated records of the same millisecond.
    """
    ended = False
    while True:
        if follow:
            ended = _ended(job)  # before the request, so that the page is complete if the job has ended
        page = job.training_data(kind, pagesize=size, pos=pos, since_time=since)
        yield from page
        if page:
            pos, since = page[-1]["meta"]["rindex"] + 1, ""
        if not follow or (ended and len(page) < size):
            return
        if len(page) < size:
            time.sleep(_PAUSE)


def _ended(job: Job) -> bool:
    try:
        return job.refresh().is_terminal
    except Unavailable:
        return False
