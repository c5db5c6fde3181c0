"""A batch script: the program that runs it, and its directives."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import InvalidScript, WeftError
from weft.slurm.directives import Directive, take_option


@dataclass(frozen=True)
class BatchScript:
    """A batch script.

    Attributes:
        program: the program of its first line, and the program's options.
        directives: the directives before its first command.
        notes: what has no effect besides them, for the user.
    """

    program: Sequence[str]
    directives: Sequence[Directive]
    notes: Sequence[str]


def read_script(path: Path) -> BatchScript:
    """Raises: WeftError: the script can't be read. InvalidScript: lines of it are wrong; the text names all of them."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise WeftError(f"{path} can't be read: {error.strerror}") from error
    if not lines or not lines[0].startswith("#!"):
        raise InvalidScript(f"{path}:1: a batch script begins with #! and its program, such as #!/bin/bash")
    directives, notes, problems = [], [], []
    program, login = _program(lines[0])
    if login:
        notes.append(f"{path}:1: {login} has no effect on Weft: a learner has no login files")
    commands = False
    for number, line in enumerate(lines, start=1):
        if re.match(r"#SBATCH(\s|$)", line):
            place = f"{path}:{number}"
            if commands:
                notes.append(f"{place}: {line.strip()} has no effect: it comes after the first command, as in Slurm")
                continue
            try:
                words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
                while words:
                    if not words[0].startswith("-"):
                        raise InvalidScript(f"{place}: expected a directive such as --nodes=2, found {words[0]!r}")
                    directives += take_option(words, place)
            except ValueError as error:
                problems.append(f"{place}: {str(error).lower()}")
            except InvalidScript as error:
                problems.append(str(error))
        elif line.strip() and not line.startswith("#"):
            commands = True
    if problems:
        raise InvalidScript("\n".join(problems))
    return BatchScript(program, directives, notes)


def _program(line: str) -> tuple[list[str], str]:
    """The program of a line ``#!``, by its name: learners need not have it in the same folder. And its option for a
    login shell, which is left out: it would read files that set another PATH."""
    words = line[2:].split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    login = next((word for word in words[1:] if word in ("-l", "--login")), "")
    return [Path(words[0]).name if words else "bash", *(word for word in words[1:] if word != login)], login
