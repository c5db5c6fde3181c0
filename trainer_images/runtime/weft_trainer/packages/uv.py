"""uv, as a package build runs it: for the image's Python, with the job's own wheels, in the folder of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft_trainer.errors import TrainerError

_PROGRESS = re.compile(r"^ *(Resolved|Downloading|Building|Built|Prepared|Installed) ")


class UvFailed(TrainerError):
    """uv refused. ``said`` has all its lines, for :func:`weft_trainer.packages.explain.explain`."""

    def __init__(self, said: Sequence[str]) -> None:
        super().__init__("\n".join(said))
        self.said = said


class Uv:
    """
    Args:
        program: the path of uv.
        environment: its variables.
        folder: of the code.
    """

    def __init__(self, program: str, environment: Mapping[str, str], folder: Path) -> None:
        self._program = program
        self._environment = dict(environment)
        self._folder = folder
        self._wheels: list[str] = []

    def add_wheels(self, folder: Path) -> None:
        """Have ``pip`` and ``build`` find the wheels in this folder, too."""
        if str(folder) not in self._wheels:
            self._wheels.append(str(folder))

    def run(self, *command: str) -> list[str]:
        """Run uv, with its progress in the log. Returns its lines. Raises: UvFailed."""
        links = (
            [word for folder in self._wheels for word in ("--find-links", folder)]
            if command[0] in ("pip", "build")
            else []
        )
        said: list[str] = []
        with subprocess.Popen(
            [self._program, *command, "--python", sys.executable, *links, "--no-progress"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout
            for line in process.stdout:
                said.append(line.rstrip())
                if _PROGRESS.match(line):
                    print(line.strip(), flush=True)
        if process.returncode != 0:
            raise UvFailed(said)
        return said
