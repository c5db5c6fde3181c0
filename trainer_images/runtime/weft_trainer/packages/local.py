"""Packages that a job has as files: wheels, and folders of its code that are projects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from weft_trainer.errors import TrainerError
from weft_trainer.packages.request import BuildRequest, canonical_name
from weft_trainer.packages.uv import Uv

_PLACE = "./"
"""Begins the source of a package that is a path of the code."""


class LocalPackages:
    """The wheels of a job, and those that are built of its code.

    Args:
        code: the folder of the job's code.
        data: DATA_DIR, with the wheels of data stores.
        scratch: an empty folder for the wheels that are built.
    """

    def __init__(self, request: BuildRequest, code: Path, data: Path, scratch: Path, uv: Uv) -> None:
        self._code = code.resolve()
        self._scratch = scratch
        self._uv = uv
        self._by_version: dict[tuple[str, str], Path] = {}
        for wheel in _find_wheels(request, code, data):
            self._add(wheel)

    def find(self, name: str, version: str) -> Path | None:
        """The job's own wheel of a package."""
        return self._by_version.get((canonical_name(name), version))

    def bring(self, source: str) -> tuple[str, Path]:
        """The wheel of the package at a path of the code, which is built if the path is a folder.

        Args:
            source: of :meth:`source_of`.

        Returns:
            Its version, and its file.

        Raises:
            TrainerError: it can't be built.
        """
        path = self._code / source.removeprefix(_PLACE)
        if path.suffix != ".whl":
            path = self._build(path, source)
        return self._add(path), path

    def source_of(self, url: str, name: str) -> str:
        """The path in the code that a ``file:`` URL means: ``./lib``. It is the same on every learner.

        Raises:
            TrainerError: it is outside the code.
        """
        path = Path(unquote(urlsplit(url).path)).resolve()
        if not path.is_relative_to(self._code):
            raise TrainerError(f"{name} @ {url} is not in the folder of the code, where paths must be")
        return f"{_PLACE}{path.relative_to(self._code)}"

    def _build(self, path: Path, source: str) -> Path:
        target = self._scratch / hashlib.sha256(source.encode()).hexdigest()[:16]
        self._uv.run("build", "--wheel", "--quiet", "--out-dir", str(target), str(path))
        return next(target.glob("*.whl"))

    def _add(self, wheel: Path) -> str:
        name, version = wheel.name.split("-")[:2]
        self._by_version[canonical_name(name), version] = wheel
        self._uv.add_wheels(wheel.parent)
        return version


def is_local(source: str) -> bool:
    """Whether the source of a pin is a path of the code."""
    return source.startswith(_PLACE)


def may_differ(source: str) -> bool:
    """Whether a wheel is built of this path of the code, so another build of the same code may have other bytes."""
    return is_local(source) and not source.endswith(".whl")


def digest(path: Path) -> str:
    """``sha256:…`` of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def reproducible(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for builds that have no times in their wheels, so that the same code has the same wheel."""
    return {"SOURCE_DATE_EPOCH": "315532800"} | dict(environment)


def _find_wheels(request: BuildRequest, code: Path, data: Path) -> list[Path]:
    """The wheels that the job brings with its code, and from its data stores."""
    found = sorted({path for pattern in request.wheels for path in code.glob(pattern)})
    if request.wheels and not found:
        raise TrainerError(f"framework.wheels: the code has no file {' or '.join(request.wheels)}")
    for path in found:
        if path.suffix != ".whl":
            raise TrainerError(f"framework.wheels: {path.relative_to(code)} is no wheel (NAME-VERSION-….whl)")
    if request.stores:
        found += sorted(data.rglob("*.whl"))
    return found
