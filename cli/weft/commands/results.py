"""``files`` and ``download``."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft.archive import unpack
from weft.commands.common import JobArgument, JsonOption, client_of
from weft.errors import WeftError
from weft.resources.jobs import Job
from weft.transport.transfer import Progress
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.progress import bar
from weft.ui.removed import gone
from weft.ui.times import moment
from weft.words import count, size

app = typer.Typer()


@app.command("files")
def files(ctx: typer.Context, job: JobArgument, as_json: JsonOption = False) -> None:
    """List the files of a job's results."""
    found = client_of(ctx).job(job)
    listed = found.files()
    if as_json:
        show_json([dict(file.raw) for file in listed])
        return
    if not listed:
        if told := gone(found, "results"):
            say(f"{found.id} ({found.state}): {told}")
            return
        say(f"{found.id} ({found.state}) has no results" + ("" if found.is_terminal else " yet"))
        return
    made = table("SIZE", "MODIFIED", "PATH", numbers=("SIZE",))
    made.columns[2].no_wrap = False
    made.columns[2].overflow = "fold"
    for file in listed:
        made.add_row(size(file.size), moment(file.modified), escape(file.path))
    show(made)


@app.command("download")
def download(
    ctx: typer.Context,
    job: JobArgument,
    trained_model: Annotated[bool, typer.Option("--trainedmodel", help="Download the results (default).")] = False,
    definition: Annotated[bool, typer.Option("--definition", help="Download the submitted code.")] = False,
    file: Annotated[
        str | None, typer.Option("--file", metavar="PATH", help="Download one file of the results.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", "--filename", help="File or folder to create; - is stdout.", show_default=False),
    ] = None,
    unpacked: Annotated[bool, typer.Option("--unpack", help="Create a folder instead of a zip.")] = False,
) -> None:
    """Download a job's trained model, or the code it was submitted with.

    Creates a zip (with --unpack, a folder) in the current folder, with the name of the job, and prints its path.
    """
    if trained_model + definition + (file is not None) > 1:
        raise typer.BadParameter("choose one of --trainedmodel, --definition and --file")
    if unpacked and (file is not None or output == Path("-")):
        raise typer.BadParameter("only a zip can be unpacked, and only into a folder", param_hint="--unpack")
    found = client_of(ctx).job(job)
    kind = "file" if file is not None else "code" if definition else "model"
    default = Path(file).name if file is not None else f"{_file_name(found)}-{kind}" + ("" if unpacked else ".zip")
    target = output or Path(default)
    if target == Path("-"):
        _to_stdout(found, file, definition)
        return
    if target.is_dir() and not unpacked:
        target /= default
    if unpacked:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise WeftError(f"{target} exists already and is not an empty folder; choose another --output")
        with tempfile.TemporaryDirectory(prefix="weft-download-") as scratch:
            packed = Path(scratch) / "download.zip"
            _fetch(found, packed, file, definition, target.name)
            number = unpack(packed, target)
        say(f"[green]✓[/] {count(number, 'file')}")
    else:
        _fetch(found, target, file, definition, target.name)
        say(f"[green]✓[/] {size(target.stat().st_size)}")
    print(target)


def _fetch(job: Job, target: Path, file: str | None, definition: bool, label: str) -> None:
    total = None
    if file is not None or not definition:
        total = sum(result.size for result in job.files() if file is None or result.path == file) or None
    with bar(escape(label), total) as report:
        _download(job, target, file, definition, report)


def _download(job: Job, target: Path, file: str | None, definition: bool, report: Progress) -> None:
    if file is not None:
        job.download_file(file, target, report)
    elif definition:
        job.download_definition(target, report)
    else:
        job.download_trained_model(target, report)


def _to_stdout(job: Job, file: str | None, definition: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="weft-download-") as scratch:
        packed = Path(scratch) / "download"
        _fetch(job, packed, file, definition, job.name)
        with packed.open("rb") as source:
            while block := source.read(1 << 20):
                sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def _file_name(job: Job) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", job.name).strip("-.")
    return f"{name or 'job'}-{job.id.removeprefix('job-')}"
