"""The build of one virtual environment, once for all processes that wait for it.

    build RECIPE LOCK_DESCRIPTOR

:mod:`weft_workers.supervision.waits` says what stands beside the environment's folder. A virtual environment
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
import threading
import time
import traceback
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft_core import processes
from weft_workers.supervision import files, spawn, waits
from weft_workers.supervision.installer import Installer, Installing, drop_constraints
from weft_workers.supervision.waits import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TAIL = 12  # lines of output that a failure shows
_TRIES = 3
"""Builds that are killed from outside (for memory, say), after which the waiting jobs fail."""
_UNWANTED_SECONDS = 2.0
"""The build ends after so long without a waiting job. The next one may be about to come."""
_END_SECONDS = 5.0  # that a step may take to clean up after SIGTERM
_NICE = 5
"""A third of the weight of a learner's process: a small share beside training, and all of a machine that is idle."""
_UNWANTED = (
    *("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),
    *("UV_SYSTEM_PYTHON", "UV_PYTHON", "UV_PROJECT", "UV_BREAK_SYSTEM_PACKAGES"),
)
"""Variables of the caller that would lead the installer out of the environment."""


class BuildFailed(Exception):
    """The message is for the job's owner."""


class Build:
    """Runs in a process of its own."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._folder = Path(recipe.folder)
        self._python = str(self._folder / "bin" / "python")
        self._marker = f"WEFT_BUILDS={recipe.folder}"
        self._environment = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        self._environment["WEFT_BUILDS"] = recipe.folder
        self._status = recipe.beside(".status.json")
        self._tries = (files.read_json(self._status) or {}).get("tries", 0) + 1
        self._installing = Installing()
        self._step: subprocess.Popen[str] | None = None
        self.abandoned = False
        """Whether it was ended because nobody waits for it any more."""

    def run(self) -> None:
        if self._tries > _TRIES:
            raise BuildFailed(f"the build was killed {_TRIES} times; {self._recipe.beside('.log')} has what it printed")
        threading.Thread(target=self._watch, daemon=True).start()
        processes.end_with_environment(self._marker)  # of a build that was killed
        self._wipe()
        self._report("making the virtual environment")
        installer = Installer.find(self._recipe.pip_settings, self._environment)
        self._environment |= dict(installer.variables)
        drop_constraints(self._environment)
        self._make(installer)
        packages = [word for lock in (self._recipe.requirements, *self._variant(installer)) for word in ("-r", lock)]
        self._install(installer, ("--require-hashes", *self._recipe.pip, *packages))
        if self._recipe.script:
            Path(self._recipe.wheels).mkdir(parents=True, exist_ok=True)
            self._call([self._recipe.script, self._python, self._recipe.wheels], self._report)
        self._compile()
        self._complete()

    def _install(self, installer: Installer, arguments: Sequence[str]) -> None:
        try:
            self._call(installer.install(self._python, arguments), self._installer_said)
        except BuildFailed as error:
            if installer.uv is None or "Hash mismatch" not in str(error):
                raise
            # Of several files of a version, uv takes one and checks it; pip takes the one with the hash.
            print("another file of this version may have the lock's hash: pip looks for it", flush=True)
            self._call(Installer(None).install(self._python, arguments), self._installer_said)

    def _variant(self, installer: Installer) -> list[str]:
        """The lock of the variant that the index in use serves: the first that can be had, else the last."""
        for lock in self._recipe.variants[:-1]:
            looking = ("--dry-run", "--no-deps", "--require-hashes", "-r", lock)
            try:
                self._call(installer.install(self._python, looking))
            except BuildFailed:
                if self.abandoned:
                    raise
                print(f"the index in use does not have {Path(lock).parent.name}'s {Path(lock).name}", flush=True)
                continue
            return [lock]
        return self._recipe.variants[-1:]

    def _compile(self) -> None:
        """Import the modules that most programs import: jobs can't write to the environment, so each start would
        compile them anew. Modules that can't be imported on this machine are left out, as a job may not need them."""
        if not self._recipe.imports:
            return
        self._report("compiling what programs import")
        program = "import contextlib, importlib, sys\nfor name in sys.argv[1:]:\n"
        program += "    with contextlib.suppress(Exception):\n        importlib.import_module(name)\n"
        with suppress(BuildFailed):
            self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
            self._call([self._python, "-c", program, *self._recipe.imports])

    def _make(self, installer: Installer) -> None:
        try:
            self._call(installer.make(self._recipe.python, str(self._folder)))
        except BuildFailed:
            if installer.uv is None:
                raise
            # It asks an index for pip. Python brings a pip of its own: perhaps the lock needs nothing more.
            self._wipe()
            self._call(Installer(None).make(self._recipe.python, str(self._folder)))

    def explain(self, error: Exception) -> None:
        """Report the failure to the waits, and give back the space."""
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            error = BuildFailed(self._disk_full())
        message = str(error) if isinstance(error, BuildFailed) else f"{type(error).__name__}: {error}"
        self.forget()
        waits.tell_failure(self._recipe, message)

    def forget(self) -> None:
        """Leave nothing of it: no process, no file."""
        processes.end_with_environment(self._marker)
        self._wipe()
        self._status.unlink(missing_ok=True)

    def _watch(self) -> None:
        """End the build when nobody has waited for it for a while."""
        seen = time.monotonic()
        while time.monotonic() - seen < _UNWANTED_SECONDS:
            time.sleep(0.2)
            if waits.is_wanted(self._recipe.folder):
                seen = time.monotonic()
        self.abandoned = True
        print("nobody waits for it any more: ended", flush=True)
        if step := self._step:
            step.terminate()
            with suppress(subprocess.TimeoutExpired):
                step.wait(_END_SECONDS)
        processes.end_with_environment(self._marker)  # so that the main thread hears the end of the step's output

    def _call(self, command: Sequence[str], said: Callable[[str], None] | None = None) -> None:
        """Run one step; its lines go to the log, and to ``said``."""
        if self.abandoned:
            raise BuildFailed("nobody waits for it")
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
            self._step = process
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

    def _installer_said(self, line: str) -> None:
        if doing := self._installing.hear(line):
            self._report(doing)

    def _report(self, doing: str) -> None:
        files.write_json(self._status, {"progress": doing[:300], "tries": self._tries})

    def _complete(self) -> None:
        # After a power cut the mark must not be there without the files that it vouches for.
        descriptor = os.open(self._folder, os.O_RDONLY)
        ctypes.CDLL(None).syncfs(descriptor)
        os.close(descriptor)
        (self._folder / ".complete").touch()
        self._status.unlink(missing_ok=True)
        shutil.rmtree(self._recipe.beside(".waits"), ignore_errors=True)

    def _wipe(self) -> None:
        if self._folder.exists():
            (self._folder / ".complete").unlink(missing_ok=True)
            shutil.rmtree(self._folder)

    def _disk_full(self) -> str:
        free = shutil.disk_usage(self._folder.parent).free >> 20
        return f"the disk is full: {self._folder.parent} has {free} MiB left"


def _small_share() -> None:
    """Learners go before a build."""
    os.nice(_NICE)
    with suppress(OSError):  # a kernel that shares time among sessions looks at this instead
        Path("/proc/self/autogroup").write_text(str(_NICE))


def main() -> None:
    recipe, lock = sys.argv[1:]
    spawn.leave_parent(keep=[int(lock)])
    spawn.default_signals()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.umask(0o022)
    _small_share()
    build = Build(Recipe(**json.loads(recipe)))
    try:
        build.run()
    except Exception as error:
        if build.abandoned:
            build.forget()
            return
        traceback.print_exc()
        build.explain(error)
        sys.exit(1)
