"""Runs of example programs by hand, kept in a folder of their own until something that they depend on changes.

Such a run takes a minute of two cores, and shows the same each time: it depends on the program, on its data and on the
versions of its framework alone. The name of its folder has a hash of all of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.e2e.stack import ENVIRONMENTS, REPOSITORY
from tests.environments import python_of

_FOLDER = Path(ENVIRONMENTS).with_name("examples")


def recorded(name: str, image: str, sources: Iterable[Path], run: Callable[[Path], None]) -> Path:
    """The folder in which a run with these sources has left its files; the run takes place if there is none yet.

    Args:
        name: of the run. A run with other sources takes the place of an earlier one.
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
    made = Path(tempfile.mkdtemp(dir=_FOLDER, prefix=f".{name}-"))
    try:
        run(made)
        for earlier in _FOLDER.glob(f"{name}-*"):
            shutil.rmtree(earlier, ignore_errors=True)
        os.rename(made, kept)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return kept


def _files(sources: Iterable[Path]) -> Iterator[Path]:
    for source in sources:
        found = [source] if source.is_file() else sorted(source.rglob("*"))
        assert found, f"{source} is missing"
        yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)
