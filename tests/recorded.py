"""What runs of example programs by hand, and of the images' smoke tests, have shown. It is kept until one of their
sources changes.

Such a run takes up to a minute of two cores, and shows the same each time: it depends on the program, on its data and
on the versions of its framework alone. The name of its folder has a hash of all of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.e2e.stack import ENVIRONMENTS, REPOSITORY
from tests.environments import python_of

_FOLDER = Path(ENVIRONMENTS).with_name("examples")


def recorded(name: str, image: str, sources: Iterable[Path], run: Callable[[Path], None]) -> Path:
    """A folder with the files ``found*.json`` that a run with these sources has left; it takes place if there is none.

    Args:
        name: of the run.
        image: whose environment the program runs in.
        sources: files and folders below the repository on which the outcome depends.
        run: gets an empty folder, and raises if the program fails.
    """
    digest = hashlib.sha256(python_of(image).parents[1].name.encode())
    for file in _files(sources):
        digest.update(f"\n{file.relative_to(REPOSITORY)} {hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
    kept = _FOLDER / f"{name}-{digest.hexdigest()[:16]}"
    if kept.is_dir():
        return kept
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory(dir=_FOLDER) as made:
        run(Path(work))
        (whole := Path(made, "whole")).mkdir()
        for found in Path(work).glob("found*.json"):
            shutil.copy2(found, whole)
        with suppress(OSError):  # tests of another checkout may have kept the same run meanwhile
            os.rename(whole, kept)
    return kept


def _files(sources: Iterable[Path]) -> Iterator[Path]:
    for source in sources:
        found = [source] if source.is_file() else sorted(source.rglob("*"))
        assert found, f"{source} is missing"
        yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)
