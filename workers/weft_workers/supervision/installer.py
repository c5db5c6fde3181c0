"""Install packages into a virtual environment: with uv, or with pip where there is no uv.

    python installer.py FOLDER LOCK ARGUMENT…

makes FOLDER a virtual environment if there is none, installs LOCK in it, with the hash of each file checked, and then
does what ``pip install ARGUMENT…`` does: that is ``make setup``. The builds of trainer environments import this file.
It needs the standard library only, as it runs before anything is installed.

uv does not read pip's configuration (a private index, a folder of wheels), so ``trainer_images/pip-settings``
translates it for uv. ``WEFT_INSTALLER=pip`` chooses pip.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

_PIP_QUIET = ("--no-input", "--disable-pip-version-check")
_NAMED = 3
"""Downloads that a line of progress names."""
_PAUSE = 5
"""Seconds between two lines of progress where there is no terminal."""
_SETTINGS = Path(__file__).resolve().parents[3] / "trainer_images" / "pip-settings"  # of a source tree


class Installer(NamedTuple):
    """The program that installs, and how it is called."""

    uv: str | None
    """uv's path; None: pip is used."""
    variables: tuple[tuple[str, str], ...] = ()
    """uv's settings, as environment variables."""

    @staticmethod
    def find(settings: str | Path = _SETTINGS, environment: Mapping[str, str] = os.environ) -> Installer:
        """uv beside this interpreter, else on the PATH, else pip.

        Args:
            settings: the program that translates pip's configuration.
            environment: of the installation.
        """
        if environment.get("WEFT_INSTALLER") == "pip":
            return Installer(None)
        beside = Path(sys.executable).with_name("uv")
        uv = str(beside) if beside.is_file() else shutil.which("uv", path=environment.get("PATH"))
        return Installer(uv, _variables(settings, sys.executable, environment)) if uv else Installer(None)

    def make(self, python: str, folder: str) -> list[str]:
        """The command that makes a virtual environment with pip in it."""
        if self.uv is None:
            return [python, "-m", "venv", folder]
        return [self.uv, "venv", "--seed", "--python", python, folder]

    def install(self, python: str, arguments: Sequence[str]) -> list[str]:
        """The command that does what ``python -m pip install ARGUMENTS`` does."""
        if self.uv is None:
            return [python, "-m", "pip", "install", *_PIP_QUIET, *arguments]
        return [self.uv, "pip", "install", "--python", python, *arguments]


def _variables(settings: str | Path, python: str, environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Variables that make uv work as pip does: with pip's configuration, and bytecode if imports can't store it."""
    compiling = (("UV_COMPILE_BYTECODE", "1"),) if environment.get("PYTHONDONTWRITEBYTECODE") else ()
    try:
        command = [python, str(settings)]
        said = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return compiling
    pairs = (word.partition("=") for word in shlex.split(said) if word != "export")
    return tuple((name, value) for name, _, value in pairs) + compiling


def drop_constraints(environment: MutableMapping[str, str]) -> None:
    """For an install of a lock with hashes. The lock leaves nothing to the machine's own constraints, and uv refuses
    them beside hashes unless they are pins."""
    environment["UV_CONSTRAINT"] = ""


class Installing:
    """Turns the output of uv and pip into progress."""

    def __init__(self) -> None:
        self._downloads: dict[str, str] = {}
        """The size of each package that uv is downloading, as uv writes it: 182.9MiB."""
        self._collected = 0

    def hear(self, line: str) -> str:
        """The news in a line; empty: there is none."""
        words = line.split()
        match words:
            case ["Resolved", number, *_]:
                return f"bringing {number} packages"
            case ["Downloading", name, size] if size.startswith("("):  # uv: torch (182.9MiB)
                self._downloads[name] = size.strip("()")
            case ["Downloaded" | "Built", name, *_]:
                self._downloads.pop(name, None)
            case ["Building", name, *_]:
                return f"building {name}"
            case ["Prepared", number, *_]:
                return f"unpacking {number} packages"
            case ["Collecting", requirement, *_]:  # pip
                self._collected += 1
                return f"installing {requirement.partition('==')[0]} (package {self._collected})"
            case ["Installing", "collected", "packages:", *names]:
                return f"unpacking {len(names)} packages"
            case _:
                return ""
        return self._downloading()

    def _downloading(self) -> str:
        """The largest downloads, and how many others there are. A long list would hide the package that takes long."""
        largest = sorted(self._downloads, key=lambda name: -_bytes(self._downloads[name]))
        if not largest:
            return ""
        named = ", ".join(f"{name} ({self._downloads[name]})" for name in largest[:_NAMED])
        others = len(largest) - _NAMED
        return f"downloading {named}" + (f" and {others} more" if others > 0 else "")


def _bytes(size: str) -> float:
    """The bytes of a size that uv wrote, such as ``182.9MiB``; 0 if it is not of that form."""
    match = re.fullmatch(r"([\d.]+)([KMGT]?)i?B", size)
    return float(match[1]) * 1024 ** " KMGT".index(match[2] or " ") if match else 0


def main() -> int:
    folder, lock, *arguments = sys.argv[1:]
    python = str(Path(folder, "bin", "python"))
    installer = Installer.find()
    if not Path(python).exists() and not _run(installer.make(sys.executable, folder), installer):
        _run(Installer(None).make(sys.executable, folder), installer)
    if installer.uv is None and os.environ.get("WEFT_INSTALLER") != "pip":
        installer = _bring_uv(python, lock)
    steps = (["--require-hashes", "-r", lock], arguments)
    return 0 if all(_run(installer.install(python, step), installer) for step in steps) else 1


def _bring_uv(python: str, lock: str) -> Installer:
    """Install the lock's uv into the environment. Where no wheel of it fits this machine, pip goes on alone."""
    pinned = re.search(r"^uv==.*(\n +--hash.*)*", Path(lock).read_text(), re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".lock") as only:
        only.write(pinned[0] if pinned else "uv")
        only.flush()
        command = [python, "-m", "pip", "install", "--quiet", *_PIP_QUIET, "-r", only.name]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    uv = Path(python).with_name("uv")
    return Installer(str(uv), _variables(_SETTINGS, python, os.environ)) if uv.is_file() else Installer(None)


def _run(command: Sequence[str], installer: Installer) -> bool:
    """Run a step, with its progress on the screen; if it fails, with all that it printed."""
    said: list[str] = []
    installing, screen = Installing(), Screen()
    environment = {**os.environ, **dict(installer.variables)}
    if "--require-hashes" in command:
        drop_constraints(environment)
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout
        for line in process.stdout:
            said.append(line)
            screen.show(installing.hear(line))
    screen.close()
    if process.returncode != 0:
        sys.stderr.writelines(said)
    return process.returncode == 0


class Screen:
    """Shows progress: on a terminal one line with the elapsed time, elsewhere a new line every few seconds."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._doing = "…"
        self._over = threading.Event()
        self._changed = threading.Event()
        show = self._renew if sys.stderr.isatty() else self._print
        threading.Thread(target=show, daemon=True).start()

    def show(self, doing: str) -> None:
        if doing and doing != self._doing:
            self._doing = doing
            self._changed.set()

    def close(self) -> None:
        self._over.set()
        self._changed.set()  # ends the thread that waits for a change
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")

    def _renew(self) -> None:
        while not self._over.wait(0.2):
            width = max(20, shutil.get_terminal_size().columns - 1)
            line = f"  {time.monotonic() - self._begun:3.0f} s  {self._doing}"
            sys.stderr.write(f"\r\033[K{line[:width]}")
            sys.stderr.flush()

    def _print(self) -> None:
        """Print after each pause the step that began during it, as that step may take minutes."""
        while self._changed.wait() and not self._over.is_set():
            self._changed.clear()
            print(f"  {self._doing}", file=sys.stderr, flush=True)
            self._over.wait(_PAUSE)


if __name__ == "__main__":
    sys.exit(main())
