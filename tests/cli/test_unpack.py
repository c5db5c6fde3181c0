"""Files that a hostile learner sends: nothing is unpacked outside of the target."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from weft.errors import TransferError
from weft.unpack import unpack


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"x", **more: Any
) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.type, made.size = kind, len(content) if kind == tarfile.REGTYPE else 0
    for key, value in more.items():
        setattr(made, key, value)
    return made, content


HOSTILE: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "above": [entry("top", tarfile.DIRTYPE), entry("top/../../escaped")],
    "absolute": [entry("/tmp/escaped")],
    "elsewhere": [entry("top", tarfile.DIRTYPE), entry("other/escaped")],
    "through a link": [
        entry("top", tarfile.DIRTYPE),
        entry("top/link", tarfile.SYMTYPE, linkname="../.."),
        entry("top/link/escaped"),
    ],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_unpacked_outside(name: str, tmp_path: Path) -> None:
    target = tmp_path / "here" / "target"
    target.parent.mkdir()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for made, content in HOSTILE[name]:
            archive.addfile(made, io.BytesIO(content))
    said: list[str] = []
    try:
        unpack(io.BytesIO(buffer.getvalue()), target, said.append)
    except TransferError as error:
        said.append(str(error))
    assert said
    assert list(tmp_path.rglob("escaped")) in ([], [target / "link" / "escaped"])
    assert not Path("/tmp/escaped").exists()


def test_links_devices_and_long_headers(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    target = tmp_path / "target"
    target.mkdir()
    (target / "top").mkdir()
    (target / "top" / "out").symlink_to(tmp_path)
    (target / "top" / "file").symlink_to(secret)

    def unpacked(*entries: tuple[tarfile.TarInfo, bytes]) -> list[str]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for made, content in (entry("top", tarfile.DIRTYPE), *entries):
                archive.addfile(made, io.BytesIO(content))
        said: list[str] = []
        try:
            unpack(io.BytesIO(buffer.getvalue()), target / "top", said.append)
        except TransferError as error:
            said.append(str(error))
        return said

    assert "leads out of the target" in unpacked(entry("top/out/secret"))[0]
    assert unpacked(entry("top/file", content=b"theirs")) == []
    assert secret.read_text() == "mine"
    assert "left out" in unpacked(entry("top/hard", tarfile.LNKTYPE, linkname="/etc/passwd"))[0]
    assert "left out" in unpacked(entry("top/device", tarfile.CHRTYPE))[0]
    assert "outside of what is copied" in unpacked(entry("top/soft", tarfile.SYMTYPE, linkname="/etc/passwd"))[0]
    assert "a header of" in unpacked(entry("top/" + "x" * (2 << 20)))[0]
