"""The job's own virtual environment, in front of the image's.

The program runs in it, so `pip install` in the command changes nothing that another job sees. Nothing of the image is
copied. The environment is a handful of small files (PEP 405): ``pyvenv.cfg`` names the image's interpreter, and a .pth
file names the folders whose packages come after the job's own: first the overlays, then the image's.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin")
"""Folders whose programs belong to the system, rather than to the environment."""
_STARTER = ".weft-run"
_HOOK = "weft_at_exit"
_HOOKS = {_HOOK: "at_exit.py", "weft_collectives": "collectives.py", "weft_profiling": "profiling.py"}
"""The modules of the environment that are copies of ours, by name: the program's Python imports them."""
_MOST_SCRIPTS = 2_000
_LONGEST_FIRST_LINE = 256


class Venv(NamedTuple):
    """The environment below ``folder``, and the folders of packages behind its own."""

    folder: Path
    behind: Sequence[str] = ()

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"

    @property
    def packages(self) -> Path:
        """The folder into which pip installs."""
        return self.folder / "lib" / _VERSION / "site-packages"

    def has(self, package: str) -> bool:
        """Whether the overlays or the image have a package, by the name that programs import."""
        return any(os.path.isdir(os.path.join(place, package)) for place in self.behind)


def make_venv(folder: Path, overlays: Sequence[Path] = ()) -> Venv:
    """Make the environment, or write it anew if it is there: what pip has installed into it stays.

    Args:
        folder: the environment.
        overlays: folders of packages, the first in front of the others. Their programs are in their ``bin``.

    Raises:
        OSError: it can't be written.
    """
    venv = Venv(folder, (*map(str, overlays), *_image_packages()))
    venv.bin.mkdir(parents=True, exist_ok=True)
    venv.packages.mkdir(parents=True, exist_ok=True)
    # The base of the image's own environment: an interpreter in a virtual environment is a link to it.
    base = Path(getattr(sys, "_base_executable", None) or sys.executable)
    settings = {"home": base.parent, "include-system-site-packages": "false", "version": sys.version.split()[0]}
    (folder / "pyvenv.cfg").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    for name in ("python", "python3", _VERSION):
        _link(base, venv.bin / name)
    _write_path(venv)
    for place in (*overlays, Path(sys.executable).parent.parent):
        _offer_programs(place / "bin", venv)
    for name in ("pip", "pip3"):
        _write_program(venv.bin / name, f'exec {_quoted(venv.python)} -m pip "$@"')
    return venv


def _write_path(venv: Venv) -> None:
    """Have the interpreter find the other folders after the environment's own, and import the hook for its end and
    for PyTorch.
    ``addsitedir`` also reads the folders' .pth files, which plain lines would not."""
    lines = "; ".join(f"site.addsitedir({place!r})" for place in venv.behind)
    for name, file in _HOOKS.items():
        (venv.packages / f"{name}.py").write_bytes(Path(__file__).with_name(file).read_bytes())
    (venv.packages / "weft.pth").write_text(f"import site; {lines}\nimport {_HOOK}\n")


def _image_packages() -> list[str]:
    """The folders of packages of the interpreter that runs the agent."""
    found = [*site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return [place for place in found if os.path.isdir(place)]


def _offer_programs(folder: Path, venv: Venv) -> None:
    """Have the Python programs of the image or an overlay start with this environment's interpreter. As they are, they
    name another one in their first line, which does not see the job's packages.

    Each gets a link to one small script, which finds the program by the link's name.
    """
    if str(folder.resolve()) in _SYSTEM or not folder.is_dir():
        return
    starter = venv.folder / f"{_STARTER}-{len(list(venv.folder.glob(f'{_STARTER}-*')))}"
    _write_program(starter, f'exec {_quoted(venv.python)} {_quoted(folder)}/"${{0##*/}}" "$@"')
    for entry in list(os.scandir(folder))[:_MOST_SCRIPTS]:
        target = venv.bin / entry.name
        if not os.path.lexists(target) and _is_python_script(entry.path):
            _link(starter, target)


def _is_python_script(path: str) -> bool:
    """Whether a file is a program in Python, by its first line: that of an interpreter, or of the two-line form for
    long paths (``#!/bin/sh`` with ``'''exec' …``)."""
    try:
        if not os.access(path, os.X_OK) or not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            first, second = file.readline(_LONGEST_FIRST_LINE), file.readline(_LONGEST_FIRST_LINE)
    except OSError:
        return False
    return first.startswith(b"#!") and (b"python" in first or second.startswith(b"'''exec'"))


def _write_program(path: Path, line: str) -> None:
    path.unlink(missing_ok=True)  # it may be a link, to a file that is not ours
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _link(target: Path, name: Path) -> None:
    name.unlink(missing_ok=True)
    name.symlink_to(target)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
