"""A bundle: a zip that is downloaded and unpacked, of the code or of an overlay.

The agent checks it again before anything is written. The service did so too, but only this check protects the learner.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import zipfile
from pathlib import Path

from weft_trainer.errors import DataError
from weft_trainer.http import Http, Unreachable
from weft_trainer.spec import BundleInput
from weft_trainer.stores.paths import below
from weft_trainer.stores.retry import PATIENCE, Temporary, patiently

_CHUNK = 1 << 20


def fetch_bundle(bundle: BundleInput, file: int, name: str) -> None:
    """Download it into an open file. ``name``: its name in messages. Raises: DataError."""
    http = Http()
    digest = hashlib.sha256()

    def take(piece: memoryview) -> None:
        digest.update(piece)
        while piece:
            piece = piece[os.write(file, piece) :]

    def fetch() -> None:
        nonlocal digest
        digest = hashlib.sha256()
        os.lseek(file, 0, os.SEEK_SET)
        os.ftruncate(file, 0)
        try:
            answer = http.request("GET", bundle.url, take=take)
        except Unreachable as error:
            raise Temporary(f"{name} can't be downloaded: {error}") from error
        if answer.status >= 300:
            kind = Temporary if answer.status >= 500 else DataError
            raise kind(f"{name} can't be downloaded: the store answers {answer.status}")

    patiently(fetch, PATIENCE)
    if digest.hexdigest() != bundle.sha256:
        raise DataError(f"{name} is not what was submitted: sha256 {digest.hexdigest()}, expected {bundle.sha256}")


def extract(bundle: Path, folder: Path, name: str) -> int:
    """Unpack into ``folder``; the number of files. ``name``: as in :func:`fetch_bundle`. Raises: DataError."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            members = archive.infolist()
            _check(members, folder, name)
            for member in members:
                _write(archive, member, folder)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DataError(f"{name} can't be unpacked: {error}") from None
    return sum(not member.is_dir() for member in members)


def _check(members: list[zipfile.ZipInfo], folder: Path, name: str) -> None:
    seen: set[Path] = set()
    for member in members:
        path = below(folder, member.filename.rstrip("/") or "/")
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DataError(f"{name}'s '{member.filename}' is neither a file nor a folder")
        if member.flag_bits & 1:
            raise DataError(f"{name}'s '{member.filename}' is encrypted")
        if path in seen and not member.is_dir():
            raise DataError(f"{name} has '{member.filename}' twice")
        seen.add(path)
    size = sum(member.file_size for member in members)
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(f"no space left for {name}: {size:,} bytes are needed, {free:,} are free")


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    path = below(folder, member.filename.rstrip("/"))
    if member.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # zipfile reads no more than the announced size, and checks the sum.
    with archive.open(member) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, _CHUNK)
    path.chmod((member.external_attr >> 16 & 0o755) | 0o644)
