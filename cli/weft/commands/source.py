"""The first arguments of ``train`` and ``run``: a manifest or a script, its code, and the options that change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape
from typer.core import TyperCommand

from weft.bundle import manifest_in
from weft.client import read_manifest
from weft.commands.common import overrides
from weft.script import Script, as_job, is_script
from weft.ui.console import say

_ARGUMENTS = "[-- ARGUMENT...]"
_AFTER_DASHES = "The arguments of a script follow `--`"

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MANIFEST|SCRIPT",
        help="The YAML file; or a script, *.py or *.sh, for which the command makes the manifest.",
        show_default=False,
    ),
]
CodeArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIR|ZIP",
        help="The code. Default: the folder of the manifest or script; no code if the manifest has `repo`. The code "
        "of a script is a folder.",
        show_default=False,
    ),
]
ArgumentsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar=_ARGUMENTS, help="The arguments of the script, after `--`.", show_default=False),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a value of the manifest, by path: learners=4, framework.command='…'."
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="Change the name of the job.")]
LearnersOption = Annotated[int | None, typer.Option("--learners", min=1, help="Change the number of learners.")]
GpusOption = Annotated[int | None, typer.Option("--gpus", min=0, help="Change the number of GPUs of each learner.")]
CpusOption = Annotated[float | None, typer.Option("--cpus", min=0.1, help="Change the number of CPUs of each learner.")]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Change the memory of each learner: 4Gb.")
]
FrameworkOption = Annotated[
    str | None,
    typer.Option(
        "--framework",
        metavar="NAME",
        help="For a script: the framework (pytorch, tensorflow, keras, horovod, ray, python). Default: the framework "
        "that the script imports.",
    ),
]
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PACKAGE", help="A package that the image lacks: einops>=0.8."),
]
AfterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="JOB[:ENDING]",
        help="Start after this job. ENDING says how it must end: completed (the default), failed or ended.",
    ),
]
NoCodeOption = Annotated[bool, typer.Option("--no-code", help="Send no code, because the command needs none.")]


class ScriptCommand(TyperCommand):
    """A command whose words after ``--`` are the arguments of a script.

    Its option ``--save`` has a value only as ``--save=FILE``, so that it never takes the script for its value.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        try:
            rest: list[str] = super().parse_args(ctx, ["--save=" if word == "--save" else word for word in args[:at]])
        except Exception as error:
            # Typer uses the installed click or a copy of it, so the class has no name that can be imported.
            if type(error).__name__ == "NoSuchOption" and any(is_script(Path(word)) for word in args[:at]):
                vars(error).update(message=f"{error}. {_AFTER_DASHES}", possibilities=None)
            raise
        if surplus := ctx.params.get("arguments"):
            raise typer.BadParameter(f"{surplus[0]!r} is too much. {_AFTER_DASHES}", ctx)
        ctx.params["arguments"] = args[at + 1 :]
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx)[:-1], _ARGUMENTS]


@dataclass(frozen=True)
class Source:
    """The job that a command submits or runs.

    Attributes:
        manifest: the path of the manifest, or the manifest of a script.
        title: what messages call the manifest.
        text: the manifest as YAML.
        values: the values that options change in it, by path.
        code: the folder or zip of the code; None: the job has none.
        leave_out: the manifest, which is not sent as code.
        again: the words after `weft train` that submit the same job.
        script: None for a manifest.
    """

    manifest: Path | Mapping[str, Any]
    title: str
    text: str
    values: Mapping[str, str]
    code: Path | None
    leave_out: Path | None
    again: Sequence[str]
    script: Script | None = None


def read_source(
    path: Path,
    code: Path | None,
    arguments: Sequence[str] | None,
    *,
    settings: Sequence[str] | None,
    keys: Mapping[str, Any],
    framework: str | None,
    packages: Sequence[str] | None,
    no_code: bool,
) -> Source:
    """The job of a manifest or a script.

    Args:
        settings: the values of ``--set``.
        keys: the options that are keys of the manifest, and their values; None: not given.

    Raises:
        BadParameter: the options don't go together.
        WeftError: the manifest can't be read, or the script can't become a job.
    """
    values = overrides(settings)
    if no_code and code is not None:
        raise typer.BadParameter("leave out the code or --no-code", param_hint="--no-code")
    if is_script(path):
        if no_code:
            raise typer.BadParameter("a script is code; leave out --no-code", param_hint="--no-code")
        script = as_job(path, code, arguments or (), framework=framework, packages=packages or (), keys=keys)
        again = _again(path, code, {"framework": framework, **keys}, packages or (), settings or (), arguments or ())
        title, unused = f"the manifest of {path}", manifest_in(code or path.parent)
        if script.guess:
            say(f"[dim]framework: {script.guess.framework}, because {escape(script.guess.reason)}[/]")
        return Source(script.manifest, title, script.text, values, script.code, unused, again, script)
    for given, option in ((framework, "--framework"), (arguments, "-- ARGUMENT...")):
        if given:
            raise typer.BadParameter(f"{path} is not a script, *.py or *.sh; the manifest decides", param_hint=option)
    text, _ = read_manifest(path)
    if code is None and _has_repository(text, values):
        no_code = True  # the manifest lies in a folder that need not be code
    values |= {key: _plain(value) for key, value in keys.items() if value is not None}
    if packages:
        values |= added_packages(packages, _listed_packages(text, path))
    return Source(path, str(path), text, values, None if no_code else code or path.parent, path, [str(path)])


def predecessors(jobs: Sequence[str] | None) -> list[str]:
    """The jobs of ``--after`` as values of ``--set``."""
    values = []
    for at, written in enumerate(jobs or ()):
        job, colon, ending = written.partition(":")
        values += [f"after[{at}].job={job}", *([f"after[{at}].on={ending}"] if colon else [])]
    return values


def added_packages(packages: Sequence[str], listed: int) -> dict[str, str]:
    """The packages of ``--with`` as values of a manifest that lists as many packages as ``listed``, by path."""
    return {f"framework.packages[{at}]": package for at, package in enumerate(packages, start=listed)}


def _has_repository(text: str, values: Mapping[str, str]) -> bool:
    """Whether the code is in a git repository, and so not beside the manifest."""
    try:
        found = yaml.safe_load(text)["repo"]
    except (yaml.YAMLError, LookupError, TypeError):
        found = None  # the server reports problems of the manifest
    return bool(found) or any(key.startswith("repo.") for key in values)


def _listed_packages(text: str, path: Path) -> int:
    """The number of packages that a manifest lists; those of ``--with`` come after them."""
    try:
        found = yaml.safe_load(text)["framework"].get("packages")
    except (yaml.YAMLError, LookupError, TypeError, AttributeError):
        return 0  # the server reports problems of the manifest
    if found is not None and not isinstance(found, list):
        raise typer.BadParameter(f"framework.packages of {path} is no list: write [{found}]", param_hint="--with")
    return len(found or ())


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def say_unused(source: Source) -> None:
    """Say that a manifest lies beside a script, and has no effect."""
    if source.script and source.leave_out:
        name = escape(str(source.leave_out))
        say(f"[dim]{name} has no effect; `weft train {name}` uses it[/]")


def _again(
    path: Path,
    folder: Path | None,
    options: Mapping[str, Any],
    packages: Sequence[str],
    settings: Sequence[str],
    arguments: Sequence[str],
) -> list[str]:
    words = [str(path), *([str(folder)] if folder else [])]
    for name, value in options.items():
        words += [f"--{name}", _plain(value)] if value is not None else []
    for package in packages:
        words += ["--with", package]
    for setting in settings:
        words += ["--set", setting]
    return [*words, "--", *arguments] if arguments else words
