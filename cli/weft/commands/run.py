"""``run``: a manifest's job on this machine, without any server."""

from __future__ import annotations

import getpass
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from weft.bundle import open_bundle
from weft.client import read_manifest
from weft.commands.common import JsonOption, overrides
from weft.commands.train import LearnersOption, ManifestArgument, NameOption, SetOption
from weft.errors import InvalidManifest, WeftError
from weft.exits import ExitCode, exit_code_of_state
from weft.local_run import LocalRun
from weft.models import Event, LogLine
from weft.resources.metrics import Series
from weft.ui import problems, words
from weft.ui.console import err, say
from weft.ui.feed import Feed
from weft.ui.metrics import series_table

app = typer.Typer()
_STDIN = "-"
_MOST_SERIES = 20
"""That the end shows; the file has all."""


@app.command("run")
def run(
    manifest: ManifestArgument,
    code: Annotated[
        Path | None,
        typer.Argument(metavar="DIR|ZIP", help="The code; default: the manifest's folder.", show_default=False),
    ] = None,
    settings: SetOption = None,
    learners: LearnersOption = None,
    name: NameOption = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="[ID=]FOLDER", help="A folder in place of a data store's training_data."),
    ] = None,
    pretrained: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A folder in place of the pretrained_model.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A folder in place of the training_results.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The run's own folder; else weft-run/NAME, NAME-2, ….")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint of the last run.")] = False,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="NAME[=VARIABLE]",
            help="A secret or data store that a server keeps: its value is in this environment variable; "
            "NAME=- reads a line.",
        ),
    ] = None,
    grace: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="From Ctrl-C (SIGTERM) to SIGKILL.")] = 120,
    no_code: Annotated[bool, typer.Option("--no-code", help="Without code: the command needs none.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a manifest on this machine, without any server.

    The same agent, environments and launchers as in the service; `weft train`
    then sends the same manifest away unchanged. Local folders can take the
    place of S3. Nothing is left but the run's folder, which the end names.

    Ctrl-C sends SIGTERM, so that a checkpoint can be saved; a second one kills.
    The exit code is the job's outcome.
    """
    if no_code and code is not None:
        raise typer.BadParameter("there is code as well: leave out either of the two", param_hint="--no-code")
    values = overrides(settings) | ({"name": name} if name else {}) | ({"learners": str(learners)} if learners else {})
    text, _ = read_manifest(manifest)
    request: dict[str, Any] = {
        "manifest": text,
        "overrides": values,
        "folder": str(Path("weft-run").absolute()),
        "out": _absolute(out),
        "resume": resume,
        "data": _folders(data or ()),
        "pretrained": _absolute(pretrained),
        "results": _absolute(results),
        "secrets": dict(_secret(one) for one in secret or ()),
        "grace": grace,
    }
    try:
        if no_code:
            _run(request, manifest, as_json=as_json)
        else:
            with open_bundle(code or manifest.parent, leave_out=manifest) as bundle:
                if bundle is None:
                    say(f"[dim]{escape(str(code or manifest.parent))} holds no code[/]")
                elif bundle.warning:
                    say(f"[yellow]{escape(bundle.warning)}[/]")
                _run(request | {"code": str(bundle.path.absolute()) if bundle else None}, manifest, as_json=as_json)
    except InvalidManifest as error:
        problems.explain(str(manifest), text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None


def _run(request: dict[str, Any], manifest: Path, *, as_json: bool) -> None:
    """Show a run to its end, and exit with its outcome."""
    feed = Feed(tags=True, as_json=as_json, events=True)
    begun: dict[str, Any] = {}
    with LocalRun(request) as here, _stoppable(here, request["grace"], feed) as interrupted:
        for number, one in enumerate(here.news()):
            match one["type"]:
                case "run":
                    begun = one
                    feed = Feed(tags=one["learners"] > 1, as_json=as_json, events=True)
                case "line":
                    feed.line(LogLine.from_json(one))
                case "event":
                    feed.event(Event.from_json({"id": number, "at": datetime.now(UTC).isoformat(), **one}))
                case "end":
                    _finish(one, begun, manifest, feed)
                    state = one["state"]
    raise typer.Exit(ExitCode.INTERRUPTED if interrupted and state == "HALTED" else exit_code_of_state(state))


def _finish(end: dict[str, Any], begun: dict[str, Any], manifest: Path, feed: Feed) -> None:
    """Say what became of it, and where everything is."""
    if feed.as_json:
        feed.json_line("end", {key: value for key, value in end.items() if key != "type"} | {"folder": begun["folder"]})
        return
    feed.note("")
    took = words.span(end["seconds"])
    say(f"{words.styled_state(end['state'])}  {escape(begun['name'])} in {took}")
    if end["state"] != "COMPLETED":
        for line in str(end["reason"]).splitlines():
            say(escape(line))
    series = [Series.from_json(one) for one in end["metrics"]]
    if series:
        err().print(series_table(series[:_MOST_SERIES]))
        if len(series) > _MOST_SERIES:
            say(f"[dim]and {len(series) - _MOST_SERIES:,} more[/]")
    if end["metrics_file"]:
        say(f"[key]metrics:[/]      {escape(_shown(end['metrics_file']))}")
    if end["results"]:
        say(f"[key]results:[/]      {escape(_shown(end['results']))}")
    if end["checkpoints"]:
        say(f"[key]checkpoints:[/]  {escape(_shown(end['checkpoints']))}  [dim](--resume goes on from them)[/]")
    if end["state"] == "COMPLETED":
        say(f"[key]next:[/]         [command]weft train {escape(shlex.quote(str(manifest)))} --follow[/]")


@contextmanager
def _stoppable(here: LocalRun, grace: float, feed: Feed) -> Iterator[list[int]]:
    """Ctrl-C, SIGTERM and a terminal that is closed stop the learners in order; a second one kills them. What has
    come so far is in the list."""
    heard: list[int] = []

    def stop(number: int, _: Any) -> None:
        heard.append(number)
        here.stop(grace if len(heard) == 1 else 0)
        if len(heard) == 1 and number == signal.SIGINT and not feed.as_json:
            os.write(2, f"\nstopping: the learners have {grace:g} s to save; Ctrl-C again kills them\n".encode())

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _folders(given: Sequence[str]) -> dict[str, str]:
    folders = {}
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals or "/" in name:
            name, folder = "", one
        folders[name] = str(Path(folder).absolute())
    return folders


def _secret(given: str) -> tuple[str, str | None]:
    """The name and value of ``NAME``, ``NAME=VARIABLE`` or ``NAME=-``."""
    name, _, source = given.partition("=")
    if source == _STDIN:
        if sys.stdin.isatty():
            return name, getpass.getpass(f"{name}: ")
        line = sys.stdin.readline()
        if not line:
            raise WeftError(f"--secret {name}=-: standard input has no line for it")
        return name, line.rstrip("\r\n")
    variable = source or "".join(letter if letter.isalnum() else "_" for letter in name).upper()
    value = os.environ.get(variable)
    if value is None and source:
        raise WeftError(f"--secret {given}: the environment variable {variable} is not set")
    return name, value


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _shown(path: str) -> str:
    """Relative to where we are, when it is below."""
    folder = Path(path)
    return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else path
