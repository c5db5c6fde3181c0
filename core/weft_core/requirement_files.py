"""The files of a job's code that decide which packages it gets: lists of requirements, and wheels."""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from weft_core.catalogue import Image
from weft_core.manifest.models import Framework
from weft_core.requirements import find_conflict, refers_elsewhere, requirement_lines

_MOST_BYTES = 1 << 20
"""Of a list of requirements."""


@dataclass(frozen=True)
class FileProblem:
    """Something wrong with a file that the manifest names, or with what is in it."""

    path: str
    """The manifest's key."""
    message: str
    found: str


@dataclass(frozen=True)
class CodeFiles:
    """The files of the code that decide which packages a job gets."""

    digest: str = ""
    """A hash of their content; of all of the code where a file refers to others."""
    lines: tuple[tuple[str, str], ...] = ()
    """The requirements in them, each with its place: ``requirements.txt line 3``."""


def read_code_files(
    bundle: zipfile.ZipFile, framework: Framework, sha256: str, image: Image | None
) -> tuple[CodeFiles, list[FileProblem]]:
    """Read the files that ``requirements`` and ``wheels`` of a manifest name.

    Args:
        bundle: the code, a zip that has been checked.
        framework: of the manifest.
        sha256: the hash of the bundle.
        image: the job's; None for one of the user's own.
    """
    return _Reader(bundle, framework, sha256).read(image)


class _Reader:
    def __init__(self, bundle: zipfile.ZipFile, framework: Framework, sha256: str) -> None:
        self._bundle = bundle
        self._framework = framework
        self._sha256 = sha256
        self._digest = hashlib.sha256()
        self._problems: list[FileProblem] = []

    def read(self, image: Image | None) -> tuple[CodeFiles, list[FileProblem]]:
        lines: tuple[tuple[str, str], ...] = ()
        for name in self._names():
            text = self._text(name)
            self._digest.update(f"{name}\0{text}\0".encode())
            if name.endswith((".txt", ".in")):
                lines = requirement_lines(name, text)
                elsewhere = refers_elsewhere(text)
            else:
                elsewhere = _is_computed(text)
            if elsewhere:
                self._digest.update(self._sha256.encode())
        for pattern in self._framework.wheels:
            self._add_wheels(pattern)
        for place, requirement in lines:
            if image is not None and (conflict := find_conflict(requirement, image)):
                self._add("requirements", f"{place}: {requirement}: {conflict}", requirement)
        return CodeFiles(self._digest.hexdigest(), lines), self._problems

    def _names(self) -> list[str]:
        name = self._framework.requirements
        if name is None:
            return []
        path = PurePosixPath(name)
        return [name, str(path.with_name("pyproject.toml"))] if path.name == "uv.lock" else [name]

    def _text(self, name: str) -> str:
        try:
            info = self._bundle.getinfo(name)
        except KeyError:
            self._add("requirements", f"the code has no file {name}", name)
            return ""
        if info.file_size > _MOST_BYTES:
            message = f"{name} has {info.file_size:,} bytes, accepted are at most {_MOST_BYTES:,}"
            self._add("requirements", message, name)
            return ""
        with self._bundle.open(info) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")

    def _add_wheels(self, pattern: str) -> None:
        found = [info for info in self._bundle.infolist() if _matches(info.filename, pattern)]
        if not found:
            self._add("wheels", f"the code has no file {pattern}", pattern)
        for info in sorted(found, key=lambda info: info.filename):
            if not info.filename.endswith(".whl"):
                self._add("wheels", f"{info.filename} is no wheel (NAME-VERSION-….whl)", pattern)
            self._digest.update(f"{info.filename}\0{info.file_size}\0{info.CRC}\0".encode())

    def _add(self, key: str, message: str, found: str) -> None:
        self._problems.append(FileProblem(f"framework.{key}", message, found))


def _is_computed(pyproject: str) -> bool:
    """Whether dependencies are folders of the code, or computed by it."""
    return bool(re.search(r"\bpath *=|\bworkspace *= *true|file:|\bdynamic\b", pyproject))


def _matches(name: str, pattern: str) -> bool:
    """As pathlib's glob: a ``*`` stays in its folder, but for ``**``."""
    if "**" in pattern:
        return fnmatchcase(name, pattern.replace("**/", "*"))
    parts, wanted = PurePosixPath(name).parts, PurePosixPath(pattern).parts
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
