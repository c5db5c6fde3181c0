"""An overlay as a zip: the same content always gives the same bytes, so that it is stored once."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEVEL = 1
"""Of deflate: an overlay is read by every node, but written once, and mostly small files of Python."""


def write_archive(folder: Path, archive: Path) -> tuple[int, int]:
    """Write all files below ``folder``; links become the files that they point at.

    Returns:
        How many files, and their bytes.
    """
    files = total = 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as out:
        for path in sorted(_files(folder)):
            name = os.path.relpath(path, folder)
            if _is_left_out(name):
                continue
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if os.access(path, os.X_OK) else 0o100644) << 16
            with open(path, "rb") as source, out.open(info, "w", force_zip64=True) as target:
                while piece := source.read(1 << 20):
                    target.write(piece)
                    total += len(piece)
            files += 1
    return files, total


def _files(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                yield path


def _is_left_out(name: str) -> bool:
    """uv's own lock file, and records of where a package was installed from on this machine."""
    return name == ".lock" or name.endswith((".dist-info/direct_url.json", ".dist-info/uv_cache.json"))
