"""Large files, which learners send in parts: as S3 does it, with a folder in place of the store."""

from __future__ import annotations

import errno
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

from weft_embedded.run.learners import Refused

PARTS = "parts"
"""The first part of a part's path."""


class PartedUploads:
    """Uploads under way. Each has a folder, with a file for each part.

    Args:
        incoming: for files on their way.
    """

    def __init__(self, incoming: Path) -> None:
        self._folder = incoming / PARTS

    def answer(self, call: dict[str, Any], target: Path, base: str) -> dict[str, Any]:
        """The answer to a learner's call about one upload. Raises Refused.

        Args:
            call: with ``op``.
            target: the file that the parts become.
            base: of the URLs at which parts are taken.
        """
        if call["op"] == "begin":
            upload = secrets.token_hex(16)
            (self._folder / upload).mkdir(parents=True)
            return {"upload": upload}
        upload = str(call.get("upload"))
        folder = self._find(upload)
        if folder is None:
            raise Refused(404, "not_found", f"there is no upload {upload[:100]!r}")
        match call["op"]:
            case "parts":
                return {"urls": {str(number): f"{base}/{PARTS}/{upload}/{int(number)}" for number in call["numbers"]}}
            case "complete":
                _join(folder, len(call["etags"]), target)
        shutil.rmtree(folder, ignore_errors=True)
        return {"objects": []}

    def find(self, path: str) -> Path | None:
        """The file of a part, by the rest of its URL's path; None: there is no such upload."""
        upload, _, number = path.partition("/")
        folder = self._find(upload)
        return folder / number if folder is not None and number.isascii() and number.isdigit() else None

    def _find(self, upload: str) -> Path | None:
        folder = self._folder / upload
        return folder if re.fullmatch("[0-9a-f]{32}", upload) and folder.is_dir() else None


def _join(folder: Path, parts: int, target: Path) -> None:
    """Put the parts after each other. Raises Refused."""
    first = folder / "1"
    try:
        with first.open("ab") as whole:
            for number in range(2, parts + 1):
                part = folder / str(number)
                with part.open("rb") as file:
                    shutil.copyfileobj(file, whole, 1 << 20)
                part.unlink()
    except FileNotFoundError as error:
        raise Refused(409, "conflict", f"part {Path(error.filename).name} has not come") from None
    target.parent.mkdir(parents=True, exist_ok=True)
    move_into_place(first, target)


def move_into_place(part: Path, target: Path) -> None:
    """Rename a file, also to another file system."""
    try:
        part.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = target.with_name(f".weft-{part.name}")
        try:
            shutil.copyfile(part, beside)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
