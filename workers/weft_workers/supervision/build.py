"""The build of one virtual environment, once for all who wait for it.

    build RECIPE LOCK_DESCRIPTOR

Beside the environment's folder stand ``<folder>.lock`` (held by the living build), ``<folder>.status.json`` (progress,
or why it failed) and ``<folder>.log`` (all that pip and the image's own build program printed). A virtual environment
can't be moved, so it is made in place, and counts only once ``.complete`` is in it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft_workers.supervision import files, processes, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TAIL = 12  # lines of output that a failure shows
_QUIET = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")
_UNWANTED = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables of whoever started this that would lead pip out of the environment."""


class Recipe(NamedTuple):
    """All that a build needs; as JSON it is a part of a run's spec."""

    image: str  # for people
    folder: str
    requirements: str
    pip: list[str]
    script: str | None  # called with the environment's python and `wheels`
    wheels: str
    python: str  # makes the environment

    def is_complete(self) -> bool:
        folder = Path(self.folder)
        return (folder / ".complete").exists() and (folder / "bin" / "python").exists()

    def beside(self, suffix: str) -> Path:
        return Path(self.folder + suffix)


class BuildFailed(Exception):
    """The message is for the job's owner."""


def ensure(recipe: Recipe) -> None:
    """See to it that the environment is complete or that a build of it runs; an earlier failure is forgotten."""
    if recipe.is_complete():
        return
    Path(recipe.folder).parent.mkdir(parents=True, exist_ok=True)
    lock = files.take(recipe.beside(".lock"))
    if lock is None:
        return  # it is being built
    try:
        recipe.beside(".status.json").unlink(missing_ok=True)
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


def is_building(recipe: Recipe) -> bool:
    return files.held(recipe.beside(".lock"))


def failure(recipe: Recipe) -> str:
    """Why the last build failed; empty: it didn't."""
    return str((files.read_json(recipe.beside(".status.json")) or {}).get("failed", ""))


def progress(recipe: Recipe) -> str:
    """What the build is at, 'building environment pytorch:2.13.0: installing torch (3 of 37)'; empty: there is none."""
    doing = (files.read_json(recipe.beside(".status.json")) or {}).get("progress", "starting")
    return "" if recipe.is_complete() else f"building environment {recipe.image}: {doing}"


class Build:
    """Runs in a process of its own."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._folder = Path(recipe.folder)
        self._python = str(self._folder / "bin" / "python")
        self._marker = f"WEFT_BUILDS={recipe.folder}"
        self._environment = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        self._environment["WEFT_BUILDS"] = recipe.folder
        self._packages = 0
        self._begun = 0

    def run(self) -> None:
        processes.end_with_environment(self._marker)  # of a build that was killed
        self._wipe()
        requirements = Path(self._recipe.requirements).read_text(encoding="utf-8").splitlines()
        self._packages = sum(1 for line in requirements if line[:1].isalnum())
        self._report("making the virtual environment")
        self._call([self._recipe.python, "-m", "venv", str(self._folder)])
        pip = [self._python, "-m", "pip", "install", *_QUIET]
        self._call([*pip, *self._recipe.pip, "-r", self._recipe.requirements], self._pip_said)
        if self._recipe.script:
            Path(self._recipe.wheels).mkdir(parents=True, exist_ok=True)
            self._call([self._recipe.script, self._python, self._recipe.wheels], self._report)
        self._complete()

    def explain(self, error: Exception) -> None:
        """Note the failure, and give back the space."""
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            error = BuildFailed(self._disk_full())
        message = str(error) if isinstance(error, BuildFailed) else f"{type(error).__name__}: {error}"
        self._wipe()
        files.write_json(self._recipe.beside(".status.json"), {"failed": message})

    def _call(self, command: Sequence[str], said: Callable[[str], None] | None = None) -> None:
        """Run one step; its lines go to the log, and to ``said``."""
        builder = os.getpid()

        def prepare() -> None:
            processes.die_with_parent(builder)
            spawn.default_signals()

        tail: deque[str] = deque(maxlen=_TAIL)
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self._folder.parent,
            env=self._environment,
            preexec_fn=prepare,
        ) as process:
            assert process.stdout
            for line in process.stdout:
                print(line, end="", flush=True)
                if line.strip():
                    tail.append(line.rstrip())
                    if said:
                        said(line.strip())
        if process.returncode != 0:
            if any(os.strerror(errno.ENOSPC) in line for line in tail):
                raise BuildFailed(self._disk_full())
            name = " ".join(Path(word).name for word in command[:3])
            raise BuildFailed(f"`{name} …` ended with code {process.returncode}:\n" + "\n".join(tail))

    def _pip_said(self, line: str) -> None:
        words = line.split()
        if words[0] == "Collecting":
            self._begun += 1
            name = words[1].partition("==")[0]
            self._report(f"installing {name} ({min(self._begun, self._packages)} of {self._packages})")
        elif line.startswith("Installing collected packages:"):
            self._report(f"unpacking {len(words) - 3} packages")

    def _report(self, doing: str) -> None:
        files.write_json(self._recipe.beside(".status.json"), {"progress": doing[:300]})

    def _complete(self) -> None:
        # After a power cut the mark must not be there without the files that it vouches for.
        descriptor = os.open(self._folder, os.O_RDONLY)
        ctypes.CDLL(None).syncfs(descriptor)
        os.close(descriptor)
        (self._folder / ".complete").touch()
        self._recipe.beside(".status.json").unlink(missing_ok=True)

    def _wipe(self) -> None:
        if self._folder.exists():
            (self._folder / ".complete").unlink(missing_ok=True)
            shutil.rmtree(self._folder)

    def _disk_full(self) -> str:
        free = shutil.disk_usage(self._folder.parent).free >> 20
        return f"the disk is full: {self._folder.parent} has {free} MiB left"


def main() -> None:
    recipe, lock = sys.argv[1:]
    spawn.leave_parent(keep=[int(lock)])
    spawn.default_signals()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.umask(0o022)
    build = Build(Recipe(**json.loads(recipe)))
    try:
        build.run()
    except Exception as error:
        traceback.print_exc()
        build.explain(error)
        sys.exit(1)
