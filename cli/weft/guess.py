"""The framework of a program, guessed from what the program and its own modules import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import WeftError

_FRAMEWORKS = {
    "torch": "pytorch",
    "torchvision": "pytorch",
    "lightning": "pytorch",
    "pytorch_lightning": "pytorch",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "horovod": "horovod",
    "ray": "ray",
}
"""Packages, and the framework of a manifest that has them."""
_NOTHING = "python"


@dataclass(frozen=True)
class Guess:
    """A framework, and the reason for it: ``train.py imports torch``. ``version`` is None for the newest."""

    framework: str
    reason: str
    version: str | None = None


def guess_framework(program: Path, folder: Path) -> Guess:
    """The framework that a program needs.

    Args:
        program: a Python file, or a shell script that names Python files.
        folder: the folder of the code, in which the program finds its own modules besides those next to it.

    Raises:
        WeftError: the program is not valid Python, or imports frameworks of which no image has both.
    """
    roots = (program.parent, folder)
    if program.suffix == ".py":
        files = [program]
    else:
        files = [root / name for name in _python_files(program) for root in roots if (root / name).is_file()]
    found: dict[str, str] = {}  # framework → reason
    seen = set(files)
    for file in files:  # grows: a module's own modules count, too
        for name in _imported(file, must_parse=file == program):
            modules = _own(name, file, roots)
            files += [module for module in modules if module not in seen]
            seen.update(modules)
            package = name.partition(".")[0]
            if not modules and package in _FRAMEWORKS:
                found.setdefault(_FRAMEWORKS[package], f"{file.name} imports {package}")
    return _choose(program, found)


def _choose(program: Path, found: dict[str, str]) -> Guess:
    tensorflow = found.keys() & {"tensorflow", "keras"}
    if "ray" in found:
        return Guess("ray", found["ray"])
    if "horovod" in found:
        version = "tensorflow" if tensorflow and "pytorch" not in found else None
        return Guess("horovod", found["horovod"], version)
    if "pytorch" in found and tensorflow:
        other = sorted(tensorflow)[-1]
        raise WeftError(
            f"{found['pytorch']}, and {found[other]}; no image has both. Choose pytorch or {other} by --framework (in "
            "Python: framework=)"
        )
    for framework in ("pytorch", "tensorflow", "keras"):
        if framework in found:
            return Guess(framework, found[framework])
    return Guess(_NOTHING, f"{program.name} imports no framework")


def _python_files(script: Path) -> list[str]:
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise WeftError(f"{script} can't be read: {error.strerror}") from error
    return re.findall(r"(?<![\w./-])[\w./-]+\.py(?!\w)", text)


def _imported(file: Path, *, must_parse: bool) -> Iterator[str]:
    """The names of the modules that a file imports, with leading dots where they are relative."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError) as error:
        if must_parse:
            raise WeftError(_unreadable(file, error)) from error
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            dot = "" if module.endswith(".") else "."
            yield from (f"{module}{dot}{alias.name}" for alias in node.names)  # perhaps modules, too


def _unreadable(file: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{file} can't be read: {error.strerror}"
    if isinstance(error, SyntaxError):
        return f"{file}:{error.lineno}: {error.msg}"
    return f"{file} is not Python: {error}"


def _own(name: str, file: Path, roots: Sequence[Path]) -> list[Path]:
    """The files of the program's own that the import of a module runs; none: the module is not the program's own."""
    steps = name.lstrip(".").split(".")
    level = len(name) - len(name.lstrip("."))
    if level:
        roots = [file.parents[level - 1]] if level <= len(file.parents) else []
    for root in roots:
        files = []
        for n in range(1, len(steps) + 1):
            path = root.joinpath(*steps[:n])
            files += [found for found in (path / "__init__.py", path.with_name(f"{path.name}.py")) if found.is_file()]
        if files:
            return files
    return []
