"""Submitting a job: shared by ``train``, ``rerun`` and ``sbatch``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft import words
from weft.bundle import Bundle, manifest_in, open_bundle
from weft.client import Client
from weft.commands.following import follow_to_the_end
from weft.commands.source import Source
from weft.errors import BundleError, WeftError
from weft.resources.jobs import Job
from weft.ui.console import say, show_json, show_json_lines
from weft.ui.progress import bar

_LARGE = 4 << 20

FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Show the states and the log until the job has ended.")
]
SaveOption = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="[=FILE]",
        help="For a script: write its manifest to a file, and submit nothing. Default: manifest.yml in the folder "
        "of the code.",
    ),
]


def save_manifest(source: Source, name: str) -> None:
    """Write the manifest of a script, and print the command that submits it. ``name``: the file; empty: manifest.yml in
    the folder of the code."""
    if source.script is None:
        raise typer.BadParameter(f"{source.title} is a manifest; only a script needs one", param_hint="--save")
    target = Path(name) if name else source.script.code / "manifest.yml"
    shown = target if name else Path(os.path.relpath(target))
    try:
        with target.open("x", encoding="utf-8") as opened:
            opened.write(source.text)
    except FileExistsError:
        raise WeftError(f"{shown} is there already; nothing was written. --save=FILE names another file") from None
    except OSError as error:
        raise WeftError(f"{shown} can't be written: {error.strerror}") from error
    code = [] if target.absolute().parent == source.script.code else [os.path.relpath(source.script.code)]
    say(f"[green]✓[/] {escape(str(shown))}")
    say(f"\nTrain it:  [command]weft train {escape(shlex.join([str(shown), *code]))} --follow[/]")


def submit(client: Client, source: Source) -> Job:
    """Send the code and submit the job."""
    [job] = submit_each(client, source, [source.text])
    return job


def submit_each(client: Client, source: Source, texts: Iterable[str]) -> Iterator[Job]:
    """Send the code once, and submit a job for each manifest, which is asked for when the job before is there."""
    if source.code is None:
        yield from (client.jobs.submit(text, None, source.values) for text in texts)
        return
    with open_bundle(source.code, leave_out=source.leave_out) as bundle:
        sha256 = None
        if bundle is None:
            say(f"[dim]{escape(str(source.code))} has no code, so none is sent[/]")
        else:
            if bundle.size > _LARGE:
                # Check the manifest before many bytes are sent.
                client.validate(source.manifest, source.values)
            sha256 = send_bundle(client, bundle, source.code)
        yield from (client.jobs.submit(text, sha256, source.values) for text in texts)


def send_code(client: Client, code: Path) -> str:
    """Send a folder or zip of code without a manifest in it. Returns its SHA-256."""
    with open_bundle(code, leave_out=manifest_in(code)) as bundle:
        if bundle is None:
            raise BundleError(f"{code} has no code")
        return send_bundle(client, bundle, code)


def send_bundle(client: Client, bundle: Bundle, code: Path) -> str:
    """Send the code unless the server has it. Returns its SHA-256."""
    if bundle.warning:
        say(f"[yellow]{escape(bundle.warning)}[/]")
    with bar("sending code", bundle.size) as report:
        sent = client.send_code(bundle, report)
    what = words.count(bundle.files, "file") if bundle.files is not None else escape(code.name)
    say(f"[dim]code: {what}, {words.size(bundle.size)}, {'sent' if sent else 'unchanged, not sent again'}[/]")
    return bundle.sha256


def show_submitted(client: Client, job: Job, *, follow: bool, as_json: bool, before: str = "") -> None:
    """Print a job's id after the words ``before``, and perhaps follow the job to its end."""
    if as_json and follow:
        show_json_lines([{"type": "job", **job.raw}])
    elif as_json:
        show_json(dict(job.raw))
    else:
        print(f"{before}{job.id}", flush=True)
    if follow:
        follow_to_the_end(client, job, as_json=as_json)
    elif sys.stderr.isatty() and not as_json:
        say(f"[dim]{escape(job.name)} is queued; [/][command]weft logs --follow {job.id}[/]")
