"""``command-line.md``: every command of ``weft``, from the command line itself."""

from __future__ import annotations

import argparse
import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Any, Literal, get_args, get_origin

import typer
from docs.generate.markdown import blocks, code, fenced, prose, table

from weft import ffdl
from weft.commands import COMMANDS
from weft.exits import MEANINGS
from weft.main import app, load
from weft_embedded import __main__ as embedded
from weft_embedded.backup.__main__ import make_parser as backup_parser

_INTRO = """
`weft COMMAND --help` prints the text of this page for one command. [The `weft` command](../cli.md) explains how the
commands find the server and the credentials, and what goes to stdout and stderr.

`JOB` is a job id, the beginning of an id, a name that only one job has, or `@last` for the newest job.
"""
_ENV_BUILD = """
Build the environments of images before the first job needs them. An image is named as in a manifest, by framework and
version (`pytorch`, `tensorflow:2.21`). The command prints the path of each environment, and requires
`pip install 'weft[run]'`.
"""
_FFDL = """
The command `ffdl` has the arguments and the output of FfDL's command line: [Coming from FfDL](../from-ffdl.md).
`DLAAS_URL`, `DLAAS_USERNAME` and `DLAAS_PASSWORD` name the server and the credentials.
"""
_HOME = "folder of the whole installation (default: $WEFT_HOME, or ~/.weft)"


@dataclass(frozen=True)
class Parameter:
    """An argument or an option: ``--learners NUMBER``."""

    name: str
    help: str
    default: str = ""


@dataclass(frozen=True)
class Command:
    """``weft data put``, with the texts that ``--help`` prints."""

    name: str
    usage: str
    help: str
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]
    panel: str = ""


def page() -> str:
    root = typer.main.get_group(app)
    parts = [
        "# The command line",
        _INTRO,
        "## Global options",
        "They stand before the command: `weft --profile lab list`.",
        _parameters("option", [_option(parameter, {}) for parameter in root.params if parameter.name != "version"]),
        "## Exit codes",
        table(("code", "meaning"), [(str(int(exit_code)), meaning) for exit_code, meaning in MEANINGS]),
    ]
    for panel, commands in groupby(all_commands(), key=lambda command: command.panel):
        parts += [f"## {panel}", *map(_section, commands)]
    parts += ["## The command `ffdl`", _FFDL]
    parts += [
        _section(command)
        for name, entry in typer.main.get_group(ffdl.app).commands.items()
        for command in _commands(entry, f"ffdl {name}")
    ]
    return blocks(parts)


def all_commands() -> Iterator[Command]:
    """The commands of ``weft``, in the order of ``weft --help``."""
    for name, entry in COMMANDS.items():
        parser = _EMBEDDED.get(entry.module)
        found = _embedded(parser(), name) if parser else _commands(load(name, entry), f"weft {name}")
        yield from (replace(command, panel=entry.panel) for command in found)


def _section(command: Command) -> str:
    return blocks(
        [
            f"### {code(command.name)}",
            fenced(command.usage),
            _paragraphs(command.help),
            _parameters("argument", command.arguments),
            _parameters("option", command.options),
        ]
    )


def _parameters(kind: str, parameters: typing.Sequence[Parameter]) -> str:
    if not parameters:
        return ""
    with_default = any(parameter.default for parameter in parameters)
    head = (kind, "default", "meaning") if with_default else (kind, "meaning")
    rows = [
        (code(parameter.name), *([parameter.default] if with_default else []), prose(parameter.help))
        for parameter in parameters
    ]
    return table(head, rows)


def _paragraphs(text: str) -> str:
    return blocks(prose(part) for part in re.split(r"\n\s*\n", text))


# --- Typer's commands ----------------------------------------------------------------------------------------------


def _commands(command: Any, name: str) -> Iterator[Command]:
    """A command, or those of a group."""
    if hasattr(command, "commands"):
        for subname, subcommand in command.commands.items():
            yield from _commands(subcommand, f"{name} {subname}")
        return
    types = typing.get_type_hints(inspect.unwrap(command.callback))
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = tuple(_argument(parameter) for parameter in shown if _is_argument(parameter))
    options = tuple(_option(parameter, types) for parameter in shown if not _is_argument(parameter))
    usage = " ".join(
        [
            name,
            *(["[OPTIONS]"] if options else []),
            *(_placed(parameter) for parameter in shown if _is_argument(parameter)),
        ]
    )
    yield Command(name, usage, command.help or "", arguments, options)


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _placed(argument: Any) -> str:
    """An argument in the line that shows the usage."""
    name = _name_of(argument)
    if name.startswith("["):
        return name
    several = "..." if argument.nargs == -1 and not name.endswith("…") else ""
    return f"{name}{several}" if argument.required else f"[{name}]{several}"


def _name_of(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _argument(parameter: Any) -> Parameter:
    return Parameter(_name_of(parameter), _help(parameter))


def _option(parameter: Any, types: dict[str, Any]) -> Parameter:
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    metavar = parameter.metavar or _value(types.get(parameter.name, str))
    value = "" if getattr(parameter, "is_flag", False) else metavar if metavar.startswith("[=") else f" {metavar}"
    help_text = _help(parameter)
    if parameter.multiple and "repeatable" not in help_text:
        help_text += " Can be given several times."
    if getattr(parameter.type, "max", None) is not None:
        help_text += f" From {parameter.type.min:,} to {parameter.type.max:,}."
    return Parameter(names + value, help_text, _default(parameter))


def _help(parameter: Any) -> str:
    """The help of a parameter, without the backslashes that keep rich from taking a bracket for a tag."""
    return str(parameter.help or "").replace("\\[", "[")


def _value(annotation: Any) -> str:
    """The value of an option that names none itself."""
    choices = _choices(annotation)
    if choices:
        return "|".join(choices)
    words = {int: "NUMBER", float: "NUMBER"}
    return next((words[kind] for kind in (annotation, *get_args(annotation)) if kind in words), "TEXT")


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(member.value) for member in annotation]
    return [choice for inner in get_args(annotation) for choice in _choices(inner)]


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or not parameter.show_default or callable(value):
        return ""
    return code(str(value.value if isinstance(value, Enum) else value))


# --- argparse's commands: they start and stop a whole Weft ----------------------------------------------------------


_EMBEDDED = {"local": embedded._parser, "backup": backup_parser}
"""Modules of commands that ``weft`` hands over."""


def _embedded(parser: argparse.ArgumentParser, name: str) -> Iterator[Command]:
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in subparsers._choices_actions}
    actions = [action for action in subparsers.choices[name]._actions if action.dest != "help"]
    options = [action for action in actions if action.option_strings]
    arguments = [action for action in actions if not action.option_strings]
    yield Command(
        f"weft {name}",
        " ".join([f"weft {name} [OPTIONS]", *(str(action.metavar) for action in arguments)]),
        _capitalized(helps[name]),
        tuple(Parameter(str(action.metavar), _capitalized(action.help or "")) for action in arguments),
        tuple(
            Parameter(_flags(action), _capitalized(_HOME if action.dest == "home" else action.help or ""))
            for action in options
        ),
    )
    if name == "env":
        yield Command("weft env build", "weft env build IMAGE...", _ENV_BUILD, (), ())


def _flags(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(action.option_strings) + value


def _capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
