"""``notebook``: JupyterLab as a job, and its page in the browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
import webbrowser
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft import inside, script
from weft.client import Client
from weft.commands.common import client_of, complete_job, overrides
from weft.commands.source import CpusOption, GpusOption, MemoryOption, SetOption, WithOption
from weft.commands.submitting import send_code
from weft.errors import BundleError, InvalidManifest, WeftError
from weft.exits import ExitCode, exit_code_of_state
from weft.models import TERMINAL
from weft.resources.jobs import Job
from weft.ui import problems
from weft.ui.console import say
from weft.ui.feed import Feed
from weft.ui.jobs import outcome

app = typer.Typer()

_JUPYTERLAB = "jupyterlab>=4,<5"
_PROGRAM = ["python", "-m", "weft_trainer.notebook"]
_PORT = 8888
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _duration(text: str) -> int:
    """Seconds of 30s, 10m, 2h, 1d or 0."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if text != "0" and not found:
        raise typer.BadParameter(f"{text!r} is no duration; accepted: 30m, 2h, 1d, 0")
    return int(found[1]) * _UNITS[found[2]] if found else 0


@app.command("notebook")
def notebook(
    ctx: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="A folder whose files JupyterLab shows. Default: none.", show_default=False
        ),
    ] = None,
    gpus: GpusOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    framework: Annotated[
        str, typer.Option("--framework", metavar="NAME", help="The image: python, pytorch, tensorflow, horovod, ray.")
    ] = "python",
    packages: WithOption = None,
    name: Annotated[str, typer.Option("--name", help="Name of the job.")] = "notebook",
    settings: SetOption = None,
    idle: Annotated[
        str, typer.Option("--idle", metavar="DURATION", help="End after this time without any activity; 0: never.")
    ] = "2h",
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="JOB", help="Open the page of a notebook that runs.", autocompletion=complete_job
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"Port here. Default: {_PORT}, or any free one.")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, and open no browser.")] = False,
) -> None:
    """Start JupyterLab as a job, and open its page.

    The page comes through a tunnel, with a token that is in neither the
    manifest nor the log. Ctrl-C closes the tunnel; the job runs on until
    `weft halt`, or until it has had no activity for the time of --idle.

    JupyterLab works in the job's checkpoints: its files survive the loss of the
    learner, and `weft resume`. At the end they are in the results, too.
    """
    client = client_of(ctx)
    if job is not None and folder is not None:
        raise typer.BadParameter("give a folder or --job, not both", param_hint="--job")
    if job is None:
        manifest = script.manifest(
            name,
            shlex.join([*_PROGRAM, "--idle", str(_duration(idle))]),
            framework,
            [_JUPYTERLAB, *(packages or ())],
            {"gpus": gpus, "cpus": cpus, "memory": memory},
        )
        found = _submit(client, script.as_yaml(manifest), folder, overrides(settings))
        print(found.id, flush=True)
    else:
        found = client.job(job)
    try:
        _open(client, found, port, browser=not no_open)
    except KeyboardInterrupt:
        say()
        say(f"[dim]the job [/]{found.id}[dim] continues[/]")
        say(f"  [command]weft notebook --job {found.id}[/]  [dim]to open it again[/]")
        say(f"  [command]weft halt {found.id}[/]            [dim]to stop it; its files are kept[/]")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _submit(client: Client, text: str, folder: Path | None, values: dict[str, str]) -> Job:
    sha256 = None
    if folder is not None:
        if not folder.is_dir():
            raise WeftError(f"there is no folder {folder}")
        script.refuse_more_than_code(folder, "the notebooks")
        try:
            sha256 = send_code(client, folder)
        except BundleError:
            if any(folder.iterdir()):
                raise
    try:
        return client.jobs.submit(text, sha256, values)
    except InvalidManifest as error:
        problems.explain("the notebook's manifest", text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None


def _open(client: Client, job: Job, port: int | None, *, browser: bool) -> None:
    """Wait for JupyterLab, and pass its page on until the job has ended."""
    job = _running(client, job)
    opener = partial(client.jobs.tunnel, job.id, learner=1)
    say("[dim]JupyterLab is starting[/]")
    address = json.loads(inside.output_of(opener, [*_PROGRAM, "--address"]))
    forwarder = _forwarder(opener, port, int(address["port"]))
    url = f"http://127.0.0.1:{forwarder.port}/lab?token={address['token']}"
    say(f"JupyterLab: [command]{escape(url)}[/]  [dim](Ctrl-C closes the tunnel)[/]")
    if browser and (os.environ.get("DISPLAY") or os.name == "nt" or os.uname().sysname == "Darwin"):
        webbrowser.open(url)
    threading.Thread(target=forwarder.serve, daemon=True).start()
    job = job.wait(check=False)
    for row in outcome(job):
        say(row)
    say(f"  [command]weft download {job.id}[/]  [dim]for its files[/]")


def _running(client: Client, job: Job) -> Job:
    """The job when its program runs; its events are shown meanwhile. Exits with the job's code if it ends before."""
    feed = Feed(tags=False, events=True)
    if job.state != "PROCESSING":
        for event in client.jobs.follow_events(job.id, on_trouble=feed.trouble):
            feed.show(event)
            if event.state == "PROCESSING" or event.state in TERMINAL:
                break
    job = job.refresh()
    if job.is_terminal:
        for row in outcome(job):
            say(row)
        raise typer.Exit(exit_code_of_state(job.state))
    return job


def _forwarder(opener: inside.Open, port: int | None, remote: int) -> inside.Forwarder:
    def complain(text: str) -> None:
        say(f"[yellow]{escape(text)}[/]")

    if port is not None:
        return inside.Forwarder(opener, port, remote, complain)
    try:
        return inside.Forwarder(opener, _PORT, remote, complain)
    except WeftError:
        return inside.Forwarder(opener, 0, remote, complain)
