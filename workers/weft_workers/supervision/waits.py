"""The waits for a learner's environment. The build is in :mod:`weft_workers.supervision.build`.

An environment is built once for all waits, and only as long as there are any. Beside its folder stand

``<folder>.waits/<name>``   a wait; if the build fails, this file says why
``<folder>.lock``           held by the living build
``<folder>.status.json``    the build's progress, and how often it was tried
``<folder>.log``            all that the installer and the image's own build program printed
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft_core import processes
from weft_workers.supervision import files, spawn

if TYPE_CHECKING:
    from collections.abc import Collection

    from weft_core.processes import Identity

_WAITS = ".waits"


class Recipe(NamedTuple):
    """Everything that a build needs. A run's spec contains it as JSON."""

    image: str  # for people
    folder: str
    requirements: str
    pip: list[str]
    script: str | None  # called with the environment's python and `wheels`
    wheels: str
    python: str  # makes the environment
    pip_settings: str = ""  # translates pip's configuration for uv
    imports: list[str] = []  # noqa: RUF012 - never changed; modules whose bytecode is stored
    variants: list[str] = []  # noqa: RUF012 - never changed; locks, of which the first that the index serves is installed

    def is_complete(self) -> bool:
        folder = Path(self.folder)
        return (folder / ".complete").exists() and (folder / "bin" / "python").exists()

    def beside(self, suffix: str) -> Path:
        return Path(self.folder + suffix)


class WaitState(NamedTuple):
    """How far an environment is."""

    ready: bool = False
    progress: str = ""
    failed: str = ""


class Wait:
    """A wait for an environment.

    Args:
        name: of the wait; unique on this machine.
        process: the process that waits; the wait ends with it. None: only :meth:`end` ends the wait.
    """

    def __init__(self, recipe: Recipe, name: str, process: Identity | None = None) -> None:
        self._recipe = recipe
        self._process = process
        self._file = recipe.beside(_WAITS) / name

    def check(self) -> WaitState:
        """Go on waiting: unless the environment is complete, make sure that a build runs. A build that was killed is
        started again. A failure is returned until :meth:`end`; the next wait starts another build."""
        recipe = self._recipe
        if recipe.is_complete():
            return WaitState(ready=True)
        told = files.read_json(self._file)
        if told and told["failed"]:
            return WaitState(failed=told["failed"])
        if told is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(self._file, {"process": self._process, "failed": ""})
        _start(recipe)
        return WaitState(progress=progress(recipe) or f"building environment {recipe.image}")

    def end(self) -> None:
        """Wait no longer. A build that nobody waits for ends."""
        self._file.unlink(missing_ok=True)


def progress(recipe: Recipe) -> str:
    """The build's progress: 'building environment pytorch:2.13.0: downloading torch (183 MiB)'; empty: it is over."""
    doing = (files.read_json(recipe.beside(".status.json")) or {}).get("progress", "starting")
    return "" if recipe.is_complete() else f"building environment {recipe.image}: {doing}"


def is_building(folder: str) -> bool:
    """Whether a build of the environment with this folder runs."""
    return files.held(Path(folder + ".lock"))


def is_wanted(folder: str) -> bool:
    """Whether a living process, or a wait without a process, waits for the environment with this folder."""
    return any(not told["failed"] and _lives(told["process"]) for _, told in _waits(folder))


def is_unwanted_build(folder: str) -> bool:
    """Whether a build runs that is about to end because nobody waits for it."""
    return is_building(folder) and not is_wanted(folder)


def tell_failure(recipe: Recipe, message: str) -> None:
    """Write the reason of the failure into all waits."""
    for file, told in _waits(recipe.folder):
        files.write_json(file, {**told, "failed": message})


def end_all(root: Path, prefix: str, but: Collection[str] = ()) -> list[str]:
    """End the waits whose names begin with ``prefix``, other than ``but``. Returns the environments' folders."""
    ended = []
    for file in root.glob(f"*{_WAITS}/{prefix}*"):
        if file.name not in but:
            file.unlink(missing_ok=True)
            ended.append(str(file.parent).removesuffix(_WAITS))
    return ended


def _start(recipe: Recipe) -> None:
    """Start a build, unless there is one or the environment is complete."""
    lock = files.take(recipe.beside(".lock"))
    if lock is None:
        return
    try:
        if not recipe.is_complete():
            # The build inherits the lock: there is no moment at which a second one could start.
            spawn.detached(
                "weft_workers.supervision.build",
                [json.dumps(recipe._asdict()), str(lock)],
                log=recipe.beside(".log"),
                environment=os.environ,
                keep=[lock],
            )
    finally:
        os.close(lock)


def _waits(folder: str) -> list[tuple[Path, dict[str, object]]]:
    found = [(file, files.read_json(file)) for file in Path(folder + _WAITS).glob("[!.]*")]
    return [(file, told) for file, told in found if told is not None]


def _lives(process: object) -> bool:
    identity = processes.parse_identity(process)
    return process is None or (identity is not None and processes.identity(identity.pid) == identity)
