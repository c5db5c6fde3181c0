"""The entry point of the ``weft`` command: global options, commands (loaded lazily), and the handling of errors."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from weft import errors
from weft.commands import COMMANDS, Entry
from weft.exits import MEANINGS, ExitCode, exit_code_of
from weft.ui.ansi import visible

_EPILOG = "Exit codes\n" + "\n".join(f"{code.value:>5}  {meaning}" for code, meaning in MEANINGS)


class _LazyGroup(TyperGroup):
    """Lists all commands with their first sentences; imports the module of a command only to run or complete it."""

    def __init__(self, **options: Any) -> None:
        stubs = {
            name: TyperCommand(name, help=entry.help, rich_help_panel=entry.panel) for name, entry in COMMANDS.items()
        }
        super().__init__(**options | {"commands": stubs})

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)  # in this order, in all versions of typer

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, stub, rest = super().resolve_command(ctx, args)
        return name, load(stub.name, COMMANDS[stub.name]) if stub and stub.name else None, rest


def load(name: str, entry: Entry) -> Any:
    """The real command of an entry."""
    app: typer.Typer = import_module(f"weft.commands.{entry.module}").app
    group = typer.main.get_group(app)
    if entry.group:
        group.name = name
        return group
    return group.commands[name]


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # only for this option, to keep the start quick

        print(version("weft"))
        raise typer.Exit


@app.callback()
def weft(
    ctx: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(help="URL of the server. Default: WEFT_URL, DLAAS_URL, or the profile's URL.", metavar="URL"),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="The profile to use. Default: WEFT_PROFILE, or 'default'.", metavar="NAME")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print this client's version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Weft: deep-learning training as a service.

    You submit a manifest and a folder of code, and get a trained model in S3.
    Start with `weft init`. A JOB is an id, the beginning of an id, a name
    that only one job has, or @last for the newest job.
    """
    ctx.obj = {"url": url, "profile": profile}


def main(arguments: list[str] | None = None, program: typer.Typer = app, name: str = "weft") -> int:
    """Run the command with ``arguments`` (default: those of the process); returns the exit code."""
    try:
        program(args=arguments, prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except errors.WeftError as error:
        return _explain(error, name)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader (`weft list | head -1`) has closed the pipe. The interpreter must not fail when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ERROR
    except Exception as error:
        if _debugging():
            raise
        _complain(f"{name}: error: {type(error).__name__}: {error} (WEFT_DEBUG=1 shows the traceback)")
        return ExitCode.ERROR
    return ExitCode.OK


def _explain(error: errors.WeftError, name: str) -> int:
    if _debugging():
        raise error
    _complain(f"{name}: error: {error}")
    for problem in error.problems if isinstance(error, errors.ApiError) else ():
        if problem.message not in str(error):
            _complain(f"  {problem.path}: {problem.message}")
        if problem.accepted:
            _complain(f"  accepted: {problem.accepted}")
    return exit_code_of(error)


def _complain(line: str) -> None:
    print(visible(line) if sys.stderr.isatty() else line, file=sys.stderr)


def _debugging() -> bool:
    return os.environ.get("WEFT_DEBUG", "") not in ("", "0")


def run() -> None:
    """The console script."""
    # httpx would import its own command line, with click and Pygments, where these are installed: 60 ms for nothing.
    # None marks a module that can't be imported; httpx does without it.
    sys.modules.setdefault("httpx._main", cast(Any, None))
    sys.exit(main())
