"""FfDL's ``mount_volume`` for results: a copy of RESULT_DIR in a folder of this machine."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from weft_trainer.stores.upload import files_of


def copy_results(result: Path, inside: Path, folder: str) -> None:
    """Copy every file of RESULT_DIR, each whole at once. Raises: OSError."""
    for key, path in files_of(result, inside):
        place = Path(folder, key)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{uuid.uuid4().hex}.part")
        try:
            shutil.copyfile(path, part)
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)
