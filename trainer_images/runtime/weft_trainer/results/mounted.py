"""FfDL's ``mount_volume`` for results: a copy of them in a folder of this machine."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path


def copy_results(files: Sequence[tuple[str, Path]], folder: str) -> None:
    """Copy every file to its key, each whole at once. Raises: OSError."""
    for key, path in files:
        place = Path(folder, key)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{secrets.token_hex(16)}.part")
        try:
            shutil.copyfile(path, part)
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)
