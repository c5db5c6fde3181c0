"""The command line of `weft data prepare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Weft
from tests.data.conftest import class_folders

import weft_data


def test_a_folder_from_the_command_line(weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = class_folders(tmp_path / "pets", {"cat": 5, "dog": 5})
    (folder / "cat" / "0.jpg").write_bytes(b"<html>")
    (folder / "cat" / "notes.txt").write_bytes(b"")
    command = ("data", "prepare", "imagefolder", "pets", "./out", "--validation-share", "0.2", "--resize", "16")
    done = weft(*command)
    assert (done.code, done.out) == (0, "")
    assert "! 1 file passed over: not an image by its name" in done.err
    assert "✓ train 7, validation 2: 2 files" in done.err
    assert "cat/0: not an image: it begins with b'<html>'" in done.err
    told = json.loads(weft(*command, "--json").out)
    assert (told["splits"], told["layout"], len(told["corrupt"])) == ({"train": 7, "validation": 2}, "tfrecords", 1)
    assert weft("data", "prepare", "tfrecords", "./out").code == 0
    shard = next((tmp_path / "out").glob("train-*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    done = weft("data", "prepare", "tfrecords", "./out")
    assert (done.code, "ends in the middle of the record" in done.err) == (1, True)
    done = weft("data", "prepare", "imagefolder", "pets", "pets")
    assert (done.code, "write ./pets for the folder, default:pets for the container" in done.err) == (1, True)
    done = weft("data", "prepare", "imagefolder", "pets", "./pets/out")
    assert (done.code, "is inside the source pets" in done.err) == (1, True)
    (tmp_path / "file").write_bytes(b"")
    done = weft("data", "prepare", "imagefolder", "pets", "./file/out")
    assert (done.code, "file/out/.weft-prepare: Not a directory" in done.err) == (1, True), done.err


def test_without_the_extra_it_says_what_to_install(weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weft_data, "_NEEDED", {"no_such_module": "pillow"})
    done = weft("data", "prepare", "mnist", str(tmp_path), "./out")
    assert (done.code, "pip install 'weft[data]' (pillow missing)" in done.err) == (1, True)


def test_every_source_has_its_help(weft: Weft) -> None:
    for source in ("imagenet", "imagefolder", "mnist", "tfrecords"):
        assert source in weft("data", "prepare", "--help").out
        assert "CONTAINER[/PREFIX]" in weft("data", "prepare", source, "--help").out
