"""From keys that others have chosen to paths below a folder of ours, and back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from weft_trainer.errors import DataError


def below(folder: Path, key: str) -> Path:
    """The path of ``key`` in ``folder``. Raises: DataError, when it would lie elsewhere."""
    return Path(path_below(folder, key))


def path_below(folder: Path, key: str) -> str:
    """As :func:`below`, for keys by the hundred thousand."""
    parts = key.split("/")
    if (
        not key
        or key.startswith("/")
        or ".." in parts
        or "\0" in key
        or not any(part not in ("", ".") for part in parts)
    ):
        raise DataError(f"'{key}' is no name for a file below {folder.name}/")
    return f"{folder}/{key}" if "" not in parts and "." not in parts else f"{folder}/{PurePosixPath(key)}"


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every regular file as (key, path), and every symlink; in order of name. Folders behind links are not entered."""
    for current, folders, names in os.walk(folder):
        links = [name for name in folders if Path(current, name).is_symlink()]
        folders[:] = sorted(set(folders).difference(links))
        for name in sorted([*names, *links]):
            path = Path(current, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                yield path.relative_to(folder).as_posix(), path
