"""Unpacking a downloaded zip into its folder, and nowhere else."""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from weft.errors import TransferError


def unpack(archive: Path, folder: Path) -> int:
    """Unpack ``archive`` into ``folder`` (created if missing); returns the number of files.

    Raises:
        TransferError: it is not a zip, or an entry leads out of the folder; then nothing is written.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            entries = [entry for entry in source.infolist() if not entry.is_dir()]
            for entry in entries:
                path = PurePosixPath(entry.filename)
                link = stat.S_ISLNK(entry.external_attr >> 16)
                if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or link:
                    raise TransferError(f"the archive holds {entry.filename!r}, which may lead out of {folder}")
            folder.mkdir(parents=True, exist_ok=True)
            for entry in entries:
                target = folder.joinpath(*PurePosixPath(entry.filename).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with source.open(entry) as packed, target.open("wb") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
                if entry.external_attr >> 16 & stat.S_IXUSR:
                    target.chmod(target.stat().st_mode | 0o111)
    except zipfile.BadZipFile as error:
        raise TransferError(f"the downloaded file is not a zip: {error}") from error
    except OSError as error:
        raise TransferError(f"{folder} can't be written: {error}") from error
    return len(entries)
