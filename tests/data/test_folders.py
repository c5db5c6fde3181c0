"""Folders of class folders, and archives of them."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import pytest
from tests.data.conftest import class_folders, picture, tar_of

from weft_data.errors import DatasetError
from weft_data.folders import image_folder
from weft_data.source import Source


def counts(source: Source) -> dict[str, dict[str, int]]:
    return {
        split: dict(Counter(source.classes[item.label] for item in items)) for split, items in source.splits.items()
    }


def test_a_share_of_every_class_becomes_validation(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in", {"dog": 20, "cat": 9, "emu": 2, "yak": 1})
    source = image_folder(folder, validation_share=0.25)
    assert source.classes == ["cat", "dog", "emu", "yak"]
    assert counts(source) == {
        "train": {"dog": 15, "cat": 7, "emu": 1, "yak": 1},
        "validation": {"dog": 5, "cat": 2, "emu": 1},
    }
    assert not {item.path for item in source.splits["train"]} & {item.path for item in source.splits["validation"]}
    assert source == image_folder(folder, validation_share=0.25)
    assert source != image_folder(folder, validation_share=0.25, seed=1)
    assert counts(image_folder(folder)) == {
        "train": {"dog": 18, "cat": 8, "emu": 1, "yak": 1},
        "validation": {"dog": 2, "cat": 1, "emu": 1},
    }
    assert set(image_folder(folder, validation_share=0).splits) == {"train"}


def test_splits_that_are_there_are_kept(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("val", 3), ("test", 2)):
        class_folders(tmp_path / "in" / split, {"a": count, "b": 1})
    source = image_folder(tmp_path / "in")
    assert counts(source) == {"train": {"a": 4, "b": 1}, "validation": {"a": 3, "b": 1}, "test": {"a": 2, "b": 1}}
    with pytest.raises(DatasetError, match="has a validation split of its own"):
        image_folder(tmp_path / "in", validation_share=0.1)
    class_folders(tmp_path / "in" / "extra", {"a": 1})
    with pytest.raises(DatasetError, match=r"holds 'extra/a/0\.jpg' beside train/; accepted there: test, train, val"):
        image_folder(tmp_path / "in")


def test_names_stay_different_and_safe(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "a"
    (folder / "sub").mkdir(parents=True)
    for name in ("x.jpg", "x.png", "X.jpeg", "sub/x.jpg", "sub_x.jpg", "v1.2 final.jpg", "ü.jpg"):
        (folder / name).write_bytes(picture())
    for name in (".DS_Store", "notes.txt", "Thumbs.db", ".hidden.jpg"):
        (folder / name).write_bytes(b"")
    (tmp_path / "in" / "loose.jpg").write_bytes(picture())
    source = image_folder(tmp_path / "in", validation_share=0)
    names = [item.name for item in source.splits["train"]]
    assert sorted(names) == ["X", "sub_x", "sub_x-2", "v1_2_final", "x-2", "x-3", "ü"]
    assert source.notes == [
        "2 files passed over: not an image by its name",
        "1 file passed over: not in a class folder",
    ]


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in", {"a": 2})
    (folder / "b").symlink_to(folder / "a")
    assert counts(image_folder(folder, validation_share=0)) == {"train": {"a": 2, "b": 2}}
    (tmp_path / "secret.jpg").write_bytes(picture())
    (folder / "a" / "9.jpg").symlink_to(tmp_path / "secret.jpg")
    with pytest.raises(DatasetError, match=r"a/9\.jpg is a link that leads out of the folder"):
        image_folder(folder)
    (folder / "a" / "9.jpg").unlink()
    (folder / "a" / "again").symlink_to(folder)
    with pytest.raises(DatasetError, match="is a link to a folder above it"):
        image_folder(folder)
    (folder / "a" / "again").unlink()
    (folder / "c").symlink_to(tmp_path)
    with pytest.raises(DatasetError, match="is a link that leads out of the folder"):
        image_folder(folder)


def test_an_archive_of_class_folders(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {"cat": 3, "dog": 3})
    with tarfile.open(tmp_path / "pets.tar", "w") as tar:
        tar.add(folder, "pets")
    source, same = image_folder(tmp_path / "pets.tar"), image_folder(folder)
    assert counts(source) == counts(same)
    for packed, other in zip(source.splits["train"], same.splits["train"], strict=True):
        with open(packed.path, "rb") as archive:
            archive.seek(packed.offset)
            assert (packed.name, archive.read(packed.size)) == (other.name, Path(other.path).read_bytes())
    tar_of(tmp_path / "bad.tar", ("pets/../../x/y.jpg", b""))
    with pytest.raises(DatasetError, match="leads out of the archive"):
        image_folder(tmp_path / "bad.tar")


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no folder or tar archive"):
        image_folder(tmp_path / "none")
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.jpg").write_bytes(picture())
    with pytest.raises(
        DatasetError, match=r"no image in a class folder; expected .* \(1 file passed over: not in a class"
    ):
        image_folder(tmp_path / "flat")
    tar_of(tmp_path / "odd.tar", ("pets/a:b/x.jpg", picture()), ("pets/c/x.jpg", picture()))
    with pytest.raises(DatasetError, match="'a:b' can't be the name of a class"):
        image_folder(tmp_path / "odd.tar")
