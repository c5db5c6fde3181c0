"""The digits that the examples train on: readable as MNIST's files are, and always the same."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

SCRIPT = Path(__file__).parents[2] / "examples" / "data" / "digits.py"


def read(path: Path) -> np.ndarray:
    """As MNIST's page describes the format, without the writer's help."""
    content = gzip.decompress(path.read_bytes())
    zeros, kind, axes = struct.unpack(">HBB", content[:4])
    assert (zeros, kind) == (0, 8)
    sizes = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(sizes)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=True)
    assert "1,437" in done.stdout
    assert "360" in done.stdout
    return folder


def test_mnists_names_and_shapes(written: Path) -> None:
    shapes = {path.name: read(path).shape for path in written.iterdir()}
    assert shapes == {
        "train-images-idx3-ubyte.gz": (1437, 28, 28),
        "train-labels-idx1-ubyte.gz": (1437,),
        "t10k-images-idx3-ubyte.gz": (360, 28, 28),
        "t10k-labels-idx1-ubyte.gz": (360,),
    }


def test_every_class_is_held_out_in_the_same_share(written: Path) -> None:
    held_out = np.bincount(read(written / "t10k-labels-idx1-ubyte.gz"), minlength=10)
    everything = np.bincount(load_digits().target, minlength=10)
    assert np.abs(held_out - everything / 5).max() < 1


def test_no_digit_is_in_both_and_none_is_lost(written: Path) -> None:
    """Each enlarged digit, shrunk again to what it came from, is one of the originals with its own label, once."""
    originals = load_digits()
    known = sorted(
        (tuple(image.astype(int).ravel()), int(label))
        for image, label in zip(originals.images, originals.target, strict=True)
    )
    found = []
    for name in ("train", "t10k"):
        images = read(written / f"{name}-images-idx3-ubyte.gz")[:, 4:24, 4:24]
        labels = read(written / f"{name}-labels-idx1-ubyte.gz")
        # 20 pixels say more than enough about the 8 that they were interpolated from.
        enlarging = np.stack([np.interp(np.arange(20), np.linspace(0, 19, 8), pixel) for pixel in np.eye(8)], axis=1)
        inverse = np.linalg.pinv(enlarging)
        small = np.rint(inverse @ images.astype(float) @ inverse.T * 16 / 255).astype(int)
        found += [(tuple(image.ravel()), int(label)) for image, label in zip(small, labels, strict=True)]
    assert sorted(found) == known


def test_the_frame_is_empty_and_the_ink_is_full(written: Path) -> None:
    images = read(written / "train-images-idx3-ubyte.gz")
    frame = images.copy()
    frame[:, 4:24, 4:24] = 0
    assert frame.max() == 0
    assert images.max() == 255


def test_the_same_bytes_again(written: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in written.iterdir()
    }
