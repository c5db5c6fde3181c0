"""The agent's code as Ray takes it: a zip that is named by its content."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from typing import NamedTuple

from weft_core import bundled

_EPOCH = (1980, 1, 1, 0, 0, 0)


class Package(NamedTuple):
    name: str
    data: bytes


@cache
def agent_package() -> Package:
    """The package ``weft_trainer`` of this installation; the same bytes wherever it is zipped.

    Raises:
        FileNotFoundError: the installation is broken.
    """
    root = bundled.path("trainer_images") / "runtime"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted((root / "weft_trainer").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), _EPOCH)
                entry.external_attr = 0o644 << 16
                # Stored: zlib's output differs between its versions, and Ray sends it once for all runs.
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_STORED)
    data = buffer.getvalue()
    return Package(f"weft-agent-{hashlib.sha256(data).hexdigest()[:32]}.zip", data)
