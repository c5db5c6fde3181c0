"""Lines of files that are read while programs write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft_trainer.growing import Identity, LineFile, open_regular


def test_a_file_that_is_appended_to_gives_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "logged"
    file = LineFile(path)
    given = []
    for text in (b"on", b"e\ntwo\nth", b"", b"ree\n"):
        with path.open("ab") as out:
            out.write(text)
        given += file.read(1 << 20)[0]
    assert given == [b"one", b"two", b"three"]


@pytest.mark.parametrize("text", [b"a\n", b"other\n", b"other, and longer than before\n"])
def test_a_file_that_is_begun_anew_is_read_from_its_beginning(tmp_path: Path, text: bytes) -> None:
    """Whether it is shorter than before, as long, or longer."""
    path = tmp_path / "logged"
    path.write_bytes(b"first\n")
    file = LineFile(path)
    assert file.read(1 << 20) == ([b"first"], 0)
    path.write_bytes(text)
    assert file.read(1 << 20) == ([text.rstrip()], 0)


def test_a_file_is_itself_as_long_as_it_only_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    identity, offset = Identity(), 0
    with open_regular(path) as file:
        assert not identity.is_same(file, 0), "nothing is known of it yet"
        identity.remember(file)
        for _ in range(100):
            assert identity.is_same(file, offset)
            identity.remember(file)
            with path.open("ab") as out:
                offset += out.write(b"a line\n")
        path.write_bytes(b"A" + path.read_bytes()[1:])
        assert not identity.is_same(file, offset)


@pytest.mark.parametrize(("kind", "refusal"), [("link", "symbolic links"), ("pipe", "is no regular file")])
def test_a_link_and_a_pipe_are_refused(tmp_path: Path, kind: str, refusal: str) -> None:
    (tmp_path / "link").symlink_to(__file__)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=refusal), open_regular(tmp_path / kind):
        pass
