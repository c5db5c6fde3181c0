"""``exec``, ``shell``, ``cp``, ``forward``: into the learners of a running job."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from weft import inside
from weft.commands.common import JobArgument, client_of
from weft.errors import WeftError
from weft.ui.ansi import visible
from weft.ui.console import say

app = typer.Typer()

OWN_FAILURE = 255
"""The exit code of ``weft exec`` and ``weft shell`` when the command's own is not known, as with ssh."""

LearnerOption = Annotated[int, typer.Option("--learner", "-n", min=1, help="Number of the learner, from 1.")]


def _opener(ctx: typer.Context, job: str, learner: int) -> inside.Open:
    client = client_of(ctx)
    return partial(client.jobs.tunnel, client.job(job).id, learner=learner)


def _run(ctx: typer.Context, job: str, learner: int, command: list[str] | None, terminal: bool) -> None:
    try:
        code = inside.run(_opener(ctx, job, learner), command, terminal=terminal)
    except WeftError as error:
        _complain(f"error: {error}")
        code = OWN_FAILURE
    raise typer.Exit(code)


@app.command("exec")
def execute(
    ctx: typer.Context,
    job: JobArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The command and its arguments.")],
    learner: LearnerOption = 1,
    terminal: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
) -> None:
    """Run a command in a learner of a running job.

    It runs beside the program: in its sandbox, as its user, with its folder and
    its environment. The exit code is the command's; 255 if that is not known.
    Example: weft exec JOB -- nvidia-smi
    """
    if terminal and not sys.stdin.isatty():
        raise typer.BadParameter("standard input is no terminal", param_hint="--tty")
    _run(ctx, job, learner, command, terminal)


@app.command("shell")
def shell(ctx: typer.Context, job: JobArgument, learner: LearnerOption = 1) -> None:
    """Open a shell in a learner of a running job.

    It ends with the program. When the connection breaks, it goes on over another
    one, if there is one within a minute. Processes that you start with nohup run
    on until the job's program ends.
    """
    _run(ctx, job, learner, None, sys.stdin.isatty())


@app.command("cp")
def copy(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="JOB:PATH, or a path of this machine.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A path of this machine, or JOB:PATH.")],
    learner: LearnerOption = 1,
) -> None:
    """Copy files out of a learner of a running job, or into it.

    PATH is relative to the folder of the code; '$CHECKPOINT_DIR' and the like
    are the program's variables. Folders are copied with all that is in them.
    Example: weft cp 'JOB:$CHECKPOINT_DIR/last.pt' .
    """
    there, here = _place(source), _place(target)
    if (there is None) == (here is None):
        raise typer.BadParameter("exactly one of SOURCE and TARGET has the form JOB:PATH")
    if there is not None:
        job, path = there
        files = inside.fetch(_opener(ctx, job, learner), path, Path(target), _complain)
    else:
        assert here is not None
        job, path = here
        files = inside.send(_opener(ctx, job, learner), Path(source), path, _complain)
    say(f"copied {files} {'file' if files == 1 else 'files'}")


@app.command("forward")
def forward(
    ctx: typer.Context,
    job: JobArgument,
    ports: Annotated[
        str, typer.Argument(metavar="[LOCAL:]PORT", help="Port here, and port of the learner; LOCAL 0 is any free one.")
    ],
    learner: LearnerOption = 1,
) -> None:
    """Make a port of a learner reachable on this machine.

    The program that listens at 127.0.0.1:PORT in the learner answers at
    127.0.0.1:LOCAL here, until Ctrl-C.
    """
    found = re.fullmatch(r"(?:(\d{1,5}):)?(\d{1,5})", ports)
    numbers = [int(found[1] or found[2]), int(found[2])] if found else []
    if not numbers or numbers[0] > 65535 or not 0 < numbers[1] < 65536:
        raise typer.BadParameter(f"{ports!r} is no port and no LOCAL:PORT", param_hint="PORT")
    local, remote = numbers
    forwarder = inside.Forwarder(_opener(ctx, job, learner), local, remote, _complain)
    say(f"127.0.0.1:{forwarder.port} leads to port {remote} of learner {learner}; Ctrl-C ends it")
    forwarder.serve()


def _place(text: str) -> tuple[str, str] | None:
    """Job and path of JOB:PATH; None: a path of this machine."""
    job, colon, path = text.partition(":")
    return (job, path or ".") if colon and job and "/" not in job else None


def _complain(text: str) -> None:
    print(f"weft: {visible(text)}", file=sys.stderr)
