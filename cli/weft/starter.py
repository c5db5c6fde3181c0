"""``weft init``: a starter manifest and a script."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from weft.errors import WeftError

_FILES = ("manifest.yml", "train.py", ".weftignore")


def write(folder: Path) -> list[Path]:
    """Write the starter files into ``folder`` (created if missing); returns their paths, the manifest first.

    Raises:
        WeftError: a file exists already (then none is written), or can't be written.
    """
    targets = [folder / name for name in _FILES]
    there = [str(path) for path in targets if path.exists()]
    if there:
        raise WeftError(f"already there: {', '.join(there)}; nothing was written. `weft init DIR` uses another folder")
    templates = files("weft") / "templates"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in targets:
            with path.open("x", encoding="utf-8") as file:
                file.write((templates / f"{path.name.lstrip('.')}.txt").read_text(encoding="utf-8"))
    except OSError as error:
        raise WeftError(f"{error.filename or folder} can't be written: {error.strerror}") from error
    return targets
