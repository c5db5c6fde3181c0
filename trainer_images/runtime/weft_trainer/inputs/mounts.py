"""FfDL's ``mount_volume``: folders of this machine that its engine gives to jobs appear in DATA_DIR."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from weft_trainer.errors import DataError
from weft_trainer.spec import MountInput


def link(mounts: Sequence[MountInput], data: Path) -> str:
    """Link the content of the folders into DATA_DIR; nothing is copied. Call it when all else is there, so that nothing
    is downloaded into the folders. Returns a description of the links.

    Raises:
        DataError: a folder can't be read, or something of the same name is there already.
    """
    count = 0
    for mount in mounts:
        try:
            names = sorted(os.listdir(mount.path))
        except OSError as error:
            raise DataError(f"data store '{mount.id}': {mount.path} on this machine: {error.strerror}") from None
        for name in names:
            try:
                (data / name).symlink_to(Path(mount.path, name))
            except FileExistsError:
                raise DataError(f"data store '{mount.id}' and another one both have '{name}' for DATA_DIR") from None
        count += len(names)
    return f"{count:,} entries of mounted folders" if mounts else ""
