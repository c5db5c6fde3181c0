"""The lists of requirements that uv gets: the manifest's packages, and the file of the code that it names."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomllib

from weft_trainer.errors import TrainerError
from weft_trainer.packages.explain import Source, read_file, read_packages
from weft_trainer.packages.request import BuildRequest, canonical_name
from weft_trainer.packages.uv import Uv, UvFailed

_EXPORT = ("export", "--frozen", "--no-hashes", "--no-dev", "--no-emit-project", "--no-annotate", "--no-header")
_RELATIVE = re.compile(r"^(?P<option>-e )?(?P<path>\.{1,2}(?:/[^;]*?)?)(?P<marker> ;.*)?$")
_PINNED = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;+]+)(?:\+\S+)?(?P<rest>.*)$")


@dataclass(frozen=True)
class Lists:
    """Files for uv, and where each requirement in them stands."""

    files: list[Path]
    sources: list[Source]


def requirement_lists(request: BuildRequest, code: Path, scratch: Path, uv: Uv, fixed: Mapping[str, str]) -> Lists:
    """
    Args:
        code: the folder of the job's code.
        scratch: a folder for lists.
        fixed: the image's packages that stay.

    Raises:
        TrainerError: there is no such file, or it is not for the image's Python.
    """
    packages = scratch / "packages.txt"
    packages.write_text("".join(f"{line}\n" for line in request.packages))
    sources = read_packages(request.packages)
    name = request.requirements
    if name is None:
        return Lists([packages], sources)
    path = code / name
    if not path.is_file():
        raise TrainerError(f"framework.requirements: the code has no file {name}")
    if path.name not in ("uv.lock", "pyproject.toml"):
        return Lists([packages, path], sources + read_file(name, path))
    project = path.with_name("pyproject.toml")
    _check_python(str(project.relative_to(code)), project, scratch / "python", uv)
    if path.name != "uv.lock":
        return Lists([packages, path], sources + read_file(name, path))
    exported = scratch / "uv.lock.txt"
    lines = _export(path.parent, scratch, uv, fixed)
    exported.write_text("".join(f"{_absolute(line, path.parent)}\n" for line in lines))
    return Lists([packages, exported], sources + _places(name, path, lines))


def _export(project: Path, scratch: Path, uv: Uv, fixed: Mapping[str, str]) -> list[str]:
    """uv's own lock is for its projects; this is the lock as requirements.

    Requirements that only fixed packages of the image have are left out. The image has it already, perhaps in another
    build: torch for CUDA has other requirements than torch for CPUs. So they stay in the list without the name of their
    build.
    """

    def export(*more: str) -> list[str]:
        target = scratch / "exported.txt"
        uv.run(*_EXPORT, "--quiet", *more, "--project", str(project), "--output-file", str(target))
        return [line for line in target.read_text().splitlines() if line.strip()]

    staying = []
    for line in export():
        match = _PINNED.match(line)
        if match and canonical_name(match["name"]) in fixed:
            staying.append(f"{match['name']}=={match['version']}{match['rest']}")
    return export(*(word for name in fixed for word in ("--prune", name))) + staying


def _absolute(line: str, project: Path) -> str:
    """A line with a path, which is relative to the project."""
    match = _RELATIVE.match(line)
    if match is None:
        return line
    return f"{match['option'] or ''}{(project / match['path']).resolve().as_uri()}{match['marker'] or ''}"


def _places(name: str, lock: Path, requirements: list[str]) -> list[Source]:
    """The lines of the lock that say these requirements."""
    numbers: dict[tuple[str, str], int] = {}
    package, at = "", 0
    for number, line in enumerate(lock.read_text(errors="replace").splitlines(), start=1):
        if match := re.match(r'^name = "(.+)"$', line):
            package, at = match[1], number
        elif (match := re.match(r'^version = "(.+)"$', line)) and package:
            numbers[package, match[1].partition("+")[0]] = at
            package = ""
    found = []
    for text in requirements:
        if (match := _PINNED.match(text)) and (key := (match["name"], match["version"])) in numbers:
            found.append(Source(f"{name} line {numbers[key]}", text.partition(" ;")[0]))
    return found


def _check_python(name: str, project: Path, scratch: Path, uv: Uv) -> None:
    """Refuse a project that is not for the image's Python. uv says so for a project, but not for its requirements."""
    try:
        wanted = tomllib.loads(project.read_text())["project"]["requires-python"]
    except FileNotFoundError:
        raise TrainerError(f"framework.requirements: the code has no file {name}, which uv.lock needs") from None
    except (ValueError, LookupError, TypeError):
        return  # uv reports its problems
    scratch.mkdir()
    empty = f'[project]\nname = "weft"\nversion = "0"\nrequires-python = {str(wanted)!r}\n'
    (scratch / "pyproject.toml").write_text(empty)
    try:
        uv.run("lock", "--offline", "--project", str(scratch))
    except UvFailed as refused:
        if not any("incompatible with the project's Python" in line for line in refused.said):
            raise
        version = ".".join(map(str, sys.version_info[:3]))
        message = f"{name}: requires-python is {wanted!r}, and the image has Python {version}"
        raise TrainerError(f"{message}: choose another image by framework.version, or change it") from None
