"""IDX files, as examples/data/digits.py writes them, and faulty ones."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.data.conftest import pixels
from tests.data.test_layouts import read_tfrecords

from weft_data.errors import DatasetError
from weft_data.mnist import content, mnist
from weft_data.options import Layout
from weft_data.run import Summary


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


def write(folder: Path, split: str, count: int, *, compressed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Smooth images of 12 × 10 pixels, and their labels."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(len(split))
    images = random.uniform(0, 200, (count, 1, 1)) + np.arange(12)[:, None] * 2 + np.arange(10)
    labels = np.arange(count) % 10
    for name, values in ((f"{split}-images-idx3-ubyte", images), (f"{split}-labels-idx1-ubyte", labels)):
        data = idx(values)
        path = folder / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(data) if compressed else data)
    return images.astype(np.uint8), labels


@pytest.fixture(autouse=True)
def _fresh() -> None:
    content.cache_clear()


def test_every_digit_arrives(tmp_path: Path, made: Callable[..., tuple[Path, Summary]]) -> None:
    truth = {
        "train": write(tmp_path / "in", "train", 30, compressed=True),
        "validation": write(tmp_path / "in", "t10k", 11, compressed=False),
    }
    source = mnist(tmp_path / "in")
    assert source.classes == list("0123456789")
    found = read_tfrecords(made(source, Layout.TFRECORDS, records=16)[0])
    assert len(found) == 41
    for (split, name), (label, jpeg) in found.items():
        images, labels = truth[split]
        number = int(name.partition("/")[2])
        assert (label, name[0]) == (labels[number], str(labels[number]))
        assert np.abs(pixels(jpeg)[..., 0] - images[number]).max() < 12


def test_faults_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    with pytest.raises(DatasetError, match="there is no folder"):
        mnist(folder)
    images, labels = write(folder, "train", 20, compressed=False)
    source = mnist(folder)
    assert set(source.splits) == {"train"}
    label_file = folder / "train-labels-idx1-ubyte"
    whole = label_file.read_bytes()
    for data, message in {
        whole[:-1]: "should hold 20 bytes, but holds 19",
        whole + b"x": "should hold 20 bytes, but holds 21",
        idx(labels[:9]): "holds 20 images, but .* 9 labels",
        idx(images): "is not an IDX file of bytes with 1 axes: it begins with 00 00 08 03",
        b"": "is not an IDX file",
    }.items():
        content.cache_clear()
        label_file.write_bytes(data)
        with pytest.raises(DatasetError, match=message):
            mnist(folder)
    label_file.unlink()
    with pytest.raises(DatasetError, match="lacks train-labels-idx1-ubyte"):
        mnist(folder)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(DatasetError, match="can't be read"):
        mnist(folder)


def test_more_than_ten_classes_stay_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "train", 20, compressed=False)
    content.cache_clear()
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(20)))
    source = mnist(folder)
    assert source.classes == [f"{number:02}" for number in range(20)]
