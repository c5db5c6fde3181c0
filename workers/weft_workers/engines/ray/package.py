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
    """The package ``weft_trainer`` of this installation, with the translation of pip's settings for uv; the same bytes
    wherever it is zipped.

    Raises:
        FileNotFoundError: the installation is broken.
    """
    images = bundled.path("trainer_images")
    root = images / "runtime"
    sources = [
        path for path in (root / "weft_trainer").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    files = {path.relative_to(root).as_posix(): path for path in sources}
    files["weft_trainer/bin/pip-settings"] = images / "pip-settings"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, path in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            # Stored: zlib's output differs between its versions, and Ray sends it once for all runs.
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_STORED)
    data = buffer.getvalue()
    return Package(f"weft-agent-{hashlib.sha256(data).hexdigest()[:32]}.zip", data)
