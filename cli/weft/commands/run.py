"""``run``: runs a manifest on this machine, without a server."""

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
from weft.commands.common import JsonOption
from weft.commands.source import (
    ArgumentsArgument,
    CodeArgument,
    CpusOption,
    FrameworkOption,
    GpusOption,
    LearnersOption,
    MemoryOption,
    NameOption,
    NoCodeOption,
    ScriptCommand,
    SetOption,
    Source,
    SourceArgument,
    WithOption,
    read_source,
    say_unused,
)
from weft.errors import InvalidManifest, WeftError
from weft.exits import ExitCode, exit_code_of_state
from weft.local_run import LocalRun
from weft.models import Event, LogLine
from weft.resources.metrics import Series
from weft.ui import cells, problems, times
from weft.ui.console import err, say
from weft.ui.feed import Feed
from weft.ui.jobs import param_table
from weft.ui.metrics import series_table

app = typer.Typer()
_STDIN = "-"
_MOST_SERIES = 20
"""Number of series that the end of a run shows; the file has all."""


@app.command("run", cls=ScriptCommand)
def run(
    manifest: SourceArgument,
    code: CodeArgument = None,
    arguments: ArgumentsArgument = None,
    settings: SetOption = None,
    learners: LearnersOption = None,
    gpus: GpusOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    framework: FrameworkOption = None,
    packages: WithOption = None,
    name: NameOption = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="[ID=]FOLDER", help="Folder to use instead of a data store's training_data."),
    ] = None,
    pretrained: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder to use instead of the pretrained_model.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder to use instead of the training_results.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the run. Default: weft-run/NAME, NAME-2 and so on.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint of the last run.")
    ] = False,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="NAME[=VARIABLE]",
            help="Value of a secret or data store that a server would keep: from this environment variable, or with "
            "NAME=- from a line of stdin.",
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time from Ctrl-C (SIGTERM) to SIGKILL.")
    ] = 120,
    no_code: NoCodeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a manifest or a script on this machine, without a server.

    The command uses the same agent, environments and launchers as the service,
    so `weft train` can submit the same manifest or script unchanged. Local folders can
    replace S3. Only the folder of the run remains; the command prints it at
    the end.

    Ctrl-C sends SIGTERM, so that the job can save a checkpoint. A second Ctrl-C
    kills the job. The exit code is the job's outcome.
    """
    source = read_source(
        manifest,
        code,
        arguments,
        settings=settings,
        keys={"name": name, "learners": learners, "cpus": cpus, "gpus": gpus, "memory": memory},
        framework=framework,
        packages=packages,
        no_code=no_code,
    )
    say_unused(source)
    request: dict[str, Any] = {
        "manifest": source.text,
        "overrides": dict(source.values),
        "folder": str(Path("weft-run").absolute()),
        "out": _absolute(out),
        "resume": resume,
        "data": _folders(data or ()),
        "pretrained": _absolute(pretrained),
        "results": _absolute(results),
        "secrets": dict(_secret(option) for option in secret or ()),
        "grace": grace,
    }
    try:
        if source.code is None:
            _run(request, source, as_json=as_json)
        else:
            with open_bundle(source.code, leave_out=source.leave_out) as bundle:
                if bundle is None:
                    say(f"[dim]{escape(str(source.code))} has no code[/]")
                elif bundle.warning:
                    say(f"[yellow]{escape(bundle.warning)}[/]")
                _run(request | {"code": str(bundle.path.absolute()) if bundle else None}, source, as_json=as_json)
    except InvalidManifest as error:
        problems.explain(source.title, source.text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None


def _run(request: dict[str, Any], source: Source, *, as_json: bool) -> None:
    """Show a run to its end, and exit with its outcome."""
    feed = Feed(tags=True, as_json=as_json, events=True)
    begun: dict[str, Any] = {}
    with LocalRun(request) as here, _stoppable(here, request["grace"], feed) as interrupted:
        for number, news in enumerate(here.news()):
            match news["type"]:
                case "run":
                    begun = news
                    feed = Feed(tags=news["learners"] > 1, as_json=as_json, events=True)
                case "line":
                    feed.line(LogLine.from_json(news))
                case "event":
                    feed.event(Event.from_json({"id": number, "at": datetime.now(UTC).isoformat(), **news}))
                case "end":
                    _finish(news, begun, source, feed)
                    state = news["state"]
    raise typer.Exit(ExitCode.INTERRUPTED if interrupted and state == "HALTED" else exit_code_of_state(state))


def _finish(end: dict[str, Any], begun: dict[str, Any], source: Source, feed: Feed) -> None:
    """Print the outcome, and the paths of the results."""
    if feed.as_json:
        feed.json_line("end", {key: value for key, value in end.items() if key != "type"} | {"folder": begun["folder"]})
        return
    feed.note("")
    took = times.span(end["seconds"])
    say(f"{cells.styled_state(end['state'])}  {escape(begun['name'])} in {took}")
    if end["state"] != "COMPLETED":
        for line in str(end["reason"]).splitlines():
            say(escape(line))
    series = [Series.from_json(found) for found in end["metrics"]]
    if series:
        err().print(series_table(series[:_MOST_SERIES]))
        if len(series) > _MOST_SERIES:
            say(f"[dim]and {len(series) - _MOST_SERIES:,} more[/]")
    if end["params"]:
        err().print(param_table(end["params"], str(Path(_shown(begun["folder"])) / "mlflow")))
    if end["metrics_file"]:
        say(f"[key]metrics:[/]      {escape(_shown(end['metrics_file']))}")
    if end["results"]:
        say(f"[key]results:[/]      {escape(_shown(end['results']))}")
    if end["checkpoints"]:
        say(f"[key]checkpoints:[/]  {escape(_shown(end['checkpoints']))}  [dim](--resume continues from them)[/]")
    if end["state"] == "COMPLETED":
        say(f"[key]next:[/]         [command]weft train --follow {escape(shlex.join(source.again))}[/]")


@contextmanager
def _stoppable(here: LocalRun, grace: float, feed: Feed) -> Iterator[list[int]]:
    """Stop the learners on Ctrl-C, on SIGTERM, and when the terminal is closed; the second signal kills them.

    Yields the list of the signals so far.
    """
    heard: list[int] = []

    def stop(number: int, _: Any) -> None:
        heard.append(number)
        here.stop(grace if len(heard) == 1 else 0)
        if len(heard) == 1 and number == signal.SIGINT and not feed.as_json:
            os.write(
                2,
                f"\nstopping: the learners have {grace:g} s to save a checkpoint; Ctrl-C again kills them\n".encode(),
            )

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _folders(given: Sequence[str]) -> dict[str, str]:
    folders = {}
    for option in given:
        name, equals, folder = option.partition("=")
        if not equals or "/" in name:
            name, folder = "", option
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
            raise WeftError(f"--secret {name}=-: standard input has no more lines")
        return name, line.rstrip("\r\n")
    variable = source or "".join(letter if letter.isalnum() else "_" for letter in name).upper()
    value = os.environ.get(variable)
    if value is None and source:
        raise WeftError(f"--secret {given}: the environment variable {variable} is not set")
    return name, value


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _shown(path: str) -> str:
    """The path, relative to the current folder if it is below it."""
    folder = Path(path)
    return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else path
