"""Written data sets, read back by other libraries: tarfile for WebDataset, Pillow for all. TensorFlow reads it in
tests/e2e."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tests.data.conftest import CLASSES, TRAIN, VALIDATION, class_folders

from weft_data import tfrecord
from weft_data.folders import image_folder
from weft_data.imagenet import Archives, imagenet
from weft_data.options import Layout, ResizeMode
from weft_data.run import Summary
from weft_data.source import Source

Made = Callable[..., tuple[Path, Summary]]
Records = dict[tuple[str, str], tuple[int, bytes]]  # (split, class/name): class, JPEG


def content_of(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file
    return file.read()


def read_webdataset(folder: Path) -> Records:
    found: Records = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            entries = [(info.name, content_of(tar, info)) for info in tar]
        assert len(entries) == 2 * int(path.stem.rpartition("-")[2])
        for (image, jpeg), (label, number) in zip(entries[::2], entries[1::2], strict=True):
            assert image.partition(".")[::2] == (label.partition(".")[0], "jpg")
            assert label.endswith(".cls")
            key = (path.name.split("-")[0], image.removesuffix(".jpg"))
            assert key not in found
            found[key] = (int(number), jpeg)
    return found


def read_tfrecords(folder: Path) -> Records:
    found: Records = {}
    for path in sorted(folder.glob("*.tfrecord")):
        with path.open("rb") as file:
            contents = [tfrecord.features(record.content) for record in tfrecord.records(file)]
        assert len(contents) == int(path.stem.rpartition("-")[2])
        for example in contents:
            (image,), (label,), (name,) = example["image"], example["class"], example["name"]
            assert isinstance(image, bytes)
            assert isinstance(label, int)
            assert isinstance(name, bytes)
            key = (path.name.split("-")[0], name.decode())
            assert key not in found
            found[key] = (label, image)
    return found


def read_imagefolder(folder: Path) -> Records:
    classes = sorted({path.name for path in folder.glob("*/*")})
    return {
        (path.parts[-3], f"{path.parts[-2]}/{path.stem}"): (classes.index(path.parts[-2]), path.read_bytes())
        for path in folder.glob("*/*/*.JPEG")
    }


READERS = {
    Layout.WEBDATASET: read_webdataset,
    Layout.TFRECORDS: read_tfrecords,
    Layout.IMAGEFOLDER: read_imagefolder,
}


@pytest.fixture(scope="module")
def source(ilsvrc: Path) -> Source:
    return imagenet(Archives.find(ilsvrc))


@pytest.mark.parametrize("layout", Layout)
def test_imagenet_in_every_layout(source: Source, ilsvrc: Path, made: Made, layout: Layout) -> None:
    folder, summary = made(source, layout)
    found = READERS[layout](folder)
    expected: Records = {}
    for split, items in source.splits.items():
        for item in items:
            with open(item.path, "rb") as file:
                file.seek(item.offset)
                content = file.read(item.size)
            key = (split, f"{source.classes[item.label]}/{item.name}")
            expected[key] = (item.label, content)
    lost = set(expected) - set(found)
    assert len(lost) == 1  # the one that is cut off
    assert not set(found) - set(expected)
    recoded = []
    for key, (label, jpeg) in found.items():
        assert label == expected[key][0]
        with Image.open(io.BytesIO(jpeg)) as image:
            image.load()
            assert (image.format, image.mode in ("RGB", "L")) == ("JPEG", True)
        if jpeg != expected[key][1]:
            recoded.append(key)
    about = json.loads((folder / "dataset.json").read_bytes())
    report = json.loads((folder / "report.json").read_bytes())
    assert sorted((entry["split"], entry["image"]) for entry in report["recoded"]) == sorted(recoded)
    assert sorted(entry["reason"] for entry in report["recoded"]) == ["CMYK", "PNG"]  # all others: the same bytes
    assert [(entry["split"], entry["image"]) for entry in report["corrupt"]] == list(lost)
    assert "truncated" in report["corrupt"][0]["reason"].lower()
    assert summary.records == {"train": CLASSES * TRAIN - 1, "validation": VALIDATION}
    assert (about["layout"], about["classes"], about["corrupt"]) == (layout, source.classes, 1)
    for split, told in about["splits"].items():
        labels = Counter(label for (where, _), (label, _) in found.items() if where == split)
        assert told["class_counts"] == [labels[label] for label in range(CLASSES)]
        assert told["records"] == labels.total()
        for file in told.get("files", ()):
            content = (folder / file["name"]).read_bytes()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    assert not (folder / ".weft-prepare").exists()


@pytest.mark.slow
def test_the_seed_decides_and_nothing_else(source: Source, made: Made) -> None:
    first, _ = made(source, Layout.TFRECORDS, "one")
    second, _ = made(source, Layout.TFRECORDS, "two")
    files = sorted(path.name for path in first.iterdir())
    assert files == sorted(path.name for path in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in files)
    assert len([name for name in files if name.startswith("train")]) == -(-CLASSES * TRAIN // 7)
    order = [label for (split, _), (label, _) in read_tfrecords(first).items() if split == "train"]
    assert order != sorted(order)


@pytest.mark.slow
def test_resized_images_are_square(source: Source, made: Made) -> None:
    found = READERS[Layout.WEBDATASET](made(source, Layout.WEBDATASET, resize=32)[0])
    assert len(found) == CLASSES * TRAIN - 1 + VALIDATION
    assert {Image.open(io.BytesIO(jpeg)).size for _, jpeg in found.values()} == {(32, 32)}
    short = made(source, Layout.WEBDATASET, "short", resize=32, resize_mode=ResizeMode.SHORT)[0]
    sizes = {Image.open(io.BytesIO(jpeg)).size for _, jpeg in READERS[Layout.WEBDATASET](short).values()}
    assert {min(size) for size in sizes} == {32}
    assert len(sizes) > 5


def test_names_beyond_what_a_tar_header_holds(tmp_path: Path, made: Made) -> None:
    long = "ü" * 60 + "x" * 80
    class_folders(tmp_path / "in", {long: 3, "v1.0 beta": 2})
    folder, _ = made(image_folder(tmp_path / "in", validation_share=0), Layout.WEBDATASET)
    assert {name.partition("/")[0]: label for (_, name), (label, _) in read_webdataset_dotted(folder).items()} == {
        "v1.0 beta": 0,
        long: 1,
    }


def read_webdataset_dotted(folder: Path) -> Records:
    """As the webdataset library takes names apart: at the first dot after the last slash."""
    found: Records = {}
    for path in folder.glob("*.tar"):
        with tarfile.open(path) as tar:
            for info in tar:
                where, _, name = info.name.rpartition("/")
                key, _, extension = name.partition(".")
                content = content_of(tar, info)
                if extension == "cls":
                    found[path.name.split("-")[0], f"{where}/{key}"] = (int(content), b"")
    return found
