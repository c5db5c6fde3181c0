"""TFRecords as a source: converted without loss, others' features too, and verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.conftest import picture
from tests.data.test_layouts import read_imagefolder, read_tfrecords, read_webdataset

from weft_data.errors import DatasetError
from weft_data.imagenet import Archives, imagenet
from weft_data.options import Layout
from weft_data.records import Features, tfrecords, verify
from weft_data.run import Summary
from weft_data.tfrecord import example, framed

Made = Callable[..., tuple[Path, Summary]]


@pytest.mark.slow
def test_there_and_back_nothing_changes(ilsvrc: Path, made: Made) -> None:
    first, _ = made(imagenet(Archives.find(ilsvrc)), Layout.TFRECORDS, "first")
    original = read_tfrecords(first)
    assert read_webdataset(made(tfrecords(first), Layout.WEBDATASET, records=20)[0]) == original
    assert read_imagefolder(made(tfrecords(first), Layout.IMAGEFOLDER)[0]) == original
    again, _ = made(tfrecords(first), Layout.TFRECORDS, "again", records=30)
    assert read_tfrecords(again) == original
    assert len(list(again.glob("train-*"))) == 2
    found = verify(again)
    assert (found.files, found.problems) == (3, ())
    assert {split: counts.total() for split, counts in found.counts.items()} == {"train": 59, "validation": 20}


def foreign(folder: Path) -> Path:
    """As the Inception programs write ImageNet: other names, no extension, classes from 1."""
    folder.mkdir()
    for name, numbers in (("train-00000-of-00001", range(6)), ("validation-00000-of-00001", range(6, 9))):
        messages = [example({"image/encoded": picture(n), "image/class/label": 1 + n % 3}) for n in numbers]
        (folder / name).write_bytes(b"".join(map(framed, messages)))
    return folder


def test_others_features(tmp_path: Path, made: Made) -> None:
    folder = foreign(tmp_path / "in")
    features = Features("image/encoded", "image/class/label", 1)
    # The names are not in alphabetical order, so the classes are counted anew.
    source = tfrecords(folder, features, classes=["zebra", "ant", "moose"])
    found = read_webdataset(made(source, Layout.WEBDATASET)[0])
    given = ["zebra", "ant", "moose"]
    assert len(found) == 9
    by_jpeg = {jpeg: (split, name.partition("/")[0], label) for (split, name), (label, jpeg) in found.items()}
    for n in range(9):
        name = given[n % 3]
        assert by_jpeg[picture(n)] == ("train" if n < 6 else "validation", name, sorted(given).index(name))
    assert tfrecords(folder, features).classes == ["0", "1", "2"]
    for wrong, message in {
        Features(): r"record 0: expected features 'image' \(bytes\) .* it has 'image/class/label', 'image/encoded'",
        Features("image/encoded", "image/class/label", 2): "class 1 is below the first, 2",
    }.items():
        with pytest.raises(DatasetError, match=message):
            tfrecords(folder, wrong)
    with pytest.raises(DatasetError, match="records of class 2, but there are names for 2 classes only"):
        tfrecords(folder, features, classes=["a", "b"])


def test_a_record_whose_checksum_is_wrong_is_left_out(tmp_path: Path, made: Made) -> None:
    """The image in it may well be decoded: nothing else tells that it is not what it was."""
    folder = foreign(tmp_path / "in")
    shard = folder / "train-00000-of-00001"
    stored = bytearray(shard.read_bytes())
    stored[stored.index(picture(1)) + len(picture(1)) // 2] ^= 4
    shard.write_bytes(stored)
    _, summary = made(tfrecords(folder, Features("image/encoded", "image/class/label", 1)), Layout.WEBDATASET)
    assert [(image["split"], image["reason"]) for image in summary.corrupt] == [
        ("train", "the checksum of its record is wrong")
    ]
    assert summary.records == {"train": 5, "validation": 3}


def test_verifying_finds_what_is_wrong(ilsvrc: Path, made: Made) -> None:
    folder, _ = made(imagenet(Archives.find(ilsvrc)), Layout.TFRECORDS, records=20)
    shards = sorted(folder.glob("*.tfrecord"))
    flipped = bytearray(shards[0].read_bytes())
    flipped[len(flipped) // 2] ^= 4
    shards[0].write_bytes(flipped)
    shards[1].write_bytes(shards[1].read_bytes() + framed(example({"image": picture()[:-200], "class": 0})))
    shards[2].unlink()
    problems = "\n".join(verify(folder).problems)
    assert f"{shards[0]}: the checksum of the record at byte" in problems
    assert f"{shards[1].name}: the image of record 20: " in problems
    assert f"{shards[1].name} holds 21 records, but its name says 20" in problems
    assert "of 3 shards of 'train' 2 are there" in problems
    assert "dataset.json lists 59 records in 'train'" in problems
    with pytest.raises(DatasetError, match="holds no TFRecord file"):
        verify(ilsvrc)
