"""The clothes that fashion-ray trains on: readable as Fashion-MNIST's files are, and always the same."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "data" / "fashion.py"


def read(path: Path) -> np.ndarray:
    """As MNIST's page describes the format, without the writer's help."""
    content = gzip.decompress(path.read_bytes())
    zeros, kind, axes = struct.unpack(">HBB", content[:4])
    assert (zeros, kind) == (0, 8)
    sizes = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(sizes)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fashion")
    subprocess.run([sys.executable, SCRIPT, folder], check=True, capture_output=True)
    return folder


def test_names_shapes_and_shares(written: Path) -> None:
    files = {path.name: read(path) for path in written.iterdir()}
    assert {name: file.shape for name, file in files.items()} == {
        "train-images-idx3-ubyte.gz": (2000, 28, 28),
        "train-labels-idx1-ubyte.gz": (2000,),
        "t10k-images-idx3-ubyte.gz": (500, 28, 28),
        "t10k-labels-idx1-ubyte.gz": (500,),
    }
    assert np.bincount(files["train-labels-idx1-ubyte.gz"]).tolist() == [200] * 10
    assert np.bincount(files["t10k-labels-idx1-ubyte.gz"]).tolist() == [50] * 10


def test_no_picture_is_twice_and_each_has_something_on_it(written: Path) -> None:
    images = np.concatenate([read(written / f"{name}-images-idx3-ubyte.gz") for name in ("train", "t10k")])
    assert len({image.tobytes() for image in images}) == len(images)
    assert (images > 0).mean(axis=(1, 2)).min() > 0.05


def test_there_is_something_to_learn(written: Path) -> None:
    """The nearest mean picture is right far more often than by chance, and far from always."""
    images = {name: read(written / f"{name}-images-idx3-ubyte.gz").astype(float) for name in ("train", "t10k")}
    labels = {name: read(written / f"{name}-labels-idx1-ubyte.gz") for name in ("train", "t10k")}
    means = np.stack([images["train"][labels["train"] == label].mean(axis=0) for label in range(10)])
    distances = ((images["t10k"][:, None] - means) ** 2).sum(axis=(2, 3))
    right = (distances.argmin(axis=1) == labels["t10k"]).mean()
    assert 0.4 < right < 0.95, right


def test_the_same_bytes_again(written: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in written.iterdir()
    }
