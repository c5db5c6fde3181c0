"""A script instead of a manifest: the manifest that runs the script, and the folder of its code."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from weft.errors import BundleError, WeftError
from weft.guess import Guess, guess_framework

PROGRAMS = {".py": "python", ".sh": "bash"}
"""Suffixes of scripts, and the programs that run them."""
_LONGEST_NAME = 63
_PACKAGES = ("site-packages", "dist-packages")


def is_script(path: Path) -> bool:
    """Whether a path names a script, and not a manifest."""
    return path.suffix in PROGRAMS


@dataclass(frozen=True)
class Script:
    """A script as a job.

    Attributes:
        code: the folder of the code.
        manifest: the manifest that was made for the script.
        guess: the framework that was guessed; None: it was given.
    """

    code: Path
    manifest: Mapping[str, Any]
    guess: Guess | None

    @property
    def text(self) -> str:
        """The manifest as YAML."""
        return as_yaml(self.manifest)


def as_job(
    script: Path,
    folder: Path | None = None,
    arguments: Sequence[str] = (),
    *,
    framework: str | None = None,
    packages: Sequence[str] = (),
    keys: Mapping[str, Any] | None = None,
    program: Sequence[str] | None = None,
    launcher: str | None = None,
) -> Script:
    """The job that runs a script.

    Args:
        script: a file with one of the suffixes in :data:`PROGRAMS`; any file with ``program``.
        folder: the folder of the code, if it is not the script's own folder. The script must be in it.
        arguments: the arguments of the script.
        framework: the framework; None: the one that the script imports.
        packages: packages to install in addition.
        keys: other keys of the manifest; a value None is left out.
        program: the program that runs the script, and its options; None: the one for the script's suffix.
        launcher: the launcher; None: the image's.

    Raises:
        BundleError: the folder is more than code.
        WeftError: there is no such script or folder, or the script does not tell its framework.
    """
    if not script.is_file():
        raise WeftError(f"there is no script {script}")
    file = Path(os.path.abspath(script))  # not resolved: the code is the folder in which the link stands
    code = Path(os.path.abspath(folder)) if folder else file.parent
    if not code.is_dir():
        raise WeftError(f"there is no folder {folder}; the code of a script is a folder")
    if not file.is_relative_to(code):
        raise WeftError(f"the script {script} is not in the folder of the code, {folder}")
    refuse_more_than_code(code, script.name)
    guess = None if framework else guess_framework(file, code)
    command = [*(program or [PROGRAMS[file.suffix]]), file.relative_to(code).as_posix(), *arguments]
    made = manifest(file.stem, shlex.join(command), framework or guess, packages, keys or {})
    if launcher:
        made["framework"]["launcher"] = launcher
    return Script(code, made, guess)


def manifest(
    name: str, command: str, framework: str | Guess | None, packages: Sequence[str], keys: Mapping[str, Any]
) -> dict[str, Any]:
    """A manifest for a command. ``keys`` has other keys, without those whose value is None."""
    given = {key: _plain(value) for key, value in keys.items() if value is not None}
    inner: dict[str, Any] = {"name": framework}
    if isinstance(framework, Guess):
        inner = {"name": framework.framework} | ({"version": framework.version} if framework.version else {})
    if packages:
        inner["packages"] = list(packages)
    return {"name": name[:_LONGEST_NAME]} | given | {"framework": inner | {"command": command}}


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_yaml(manifest: Mapping[str, Any]) -> str:
    """A manifest as users write it: each value on one line."""
    return yaml.safe_dump(dict(manifest), sort_keys=False, allow_unicode=True, width=1 << 16)


def refuse_more_than_code(folder: Path, script: str) -> None:
    """Refuse a folder that nobody keeps for one program, because all of it would be sent.

    Raises:
        BundleError: it is the home folder, a folder above it, the folder for temporary files, or that of installed
            packages.
    """
    folder = folder.resolve()
    what = None
    if folder == Path.home().resolve():
        what = "your home folder"
    elif Path.home().resolve().is_relative_to(folder):
        what = "a folder above your home folder"
    elif folder == Path(tempfile.gettempdir()).resolve():
        what = "the folder for temporary files"
    elif folder.name in _PACKAGES or folder == Path("/"):
        what = "a folder of the system"
    if what:
        raise BundleError(
            f"{folder} is {what}, and all of it would be sent as code: move {script} into a folder of its own"
        )
