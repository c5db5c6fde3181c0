"""The images that cifar10-resnet18 trains on: readable as CIFAR-10's binary files are, and always the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "data" / "cifar10.py"
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCH = 50


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n), images (n, 32, 32, 3): as CIFAR-10's page describes the format, without the writer's help."""
    content = path.read_bytes()
    assert len(content) % 3073 == 0
    labels, images = [], []
    for start in range(0, len(content), 3073):
        labels.append(content[start])
        planes = [np.frombuffer(content, np.uint8, 1024, start + 1 + 1024 * colour) for colour in range(3)]
        images.append(np.stack([plane.reshape(32, 32) for plane in planes], axis=-1))
    return np.array(labels), np.stack(images)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cifar10")
    done = subprocess.run(
        [sys.executable, SCRIPT, folder, "--batch", str(BATCH)], capture_output=True, text=True, check=True
    )
    assert f"{5 * BATCH} images to train on and {BATCH} held out" in done.stdout
    return folder


def test_cifar10s_names_sizes_and_shares(written: Path) -> None:
    batches = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    assert {path.name for path in written.iterdir()} == {*batches, "batches.meta.txt"}
    assert (written / "batches.meta.txt").read_text().split() == NAMES
    for name in batches:
        labels, images = read(written / name)
        assert np.bincount(labels).tolist() == [BATCH // 10] * 10
        assert images.shape == (BATCH, 32, 32, 3)


def test_pixels_lie_where_the_format_says(written: Path) -> None:
    """Neighbours in a row, in a column and in the three colours are alike, which they are in no other order."""
    _, images = read(written / "test_batch.bin")
    values = images.astype(float)
    across, down = np.abs(np.diff(values, axis=2)).mean(), np.abs(np.diff(values, axis=1)).mean()
    anywhere = np.abs(values - np.random.default_rng(1).permuted(values.reshape(BATCH, -1, 3), axis=1)
                      .reshape(values.shape)).mean()  # fmt: skip
    assert max(across, down) < 0.6 * anywhere


def test_no_image_is_twice(written: Path) -> None:
    images = np.concatenate([read(path)[1] for path in written.glob("*.bin")])
    assert len({image.tobytes() for image in images}) == len(images)


def test_no_colour_tells_the_class(written: Path) -> None:
    """By the nearest mean colour, little more is right than by chance: a network has to learn shapes."""
    labels, images = (np.concatenate(each) for each in zip(*map(read, sorted(written.glob("*.bin"))), strict=True))
    colours = images.reshape(len(images), -1, 3).mean(axis=1)
    means = np.stack([colours[:-BATCH][labels[:-BATCH] == label].mean(axis=0) for label in range(10)])
    right = ((colours[-BATCH:, None] - means) ** 2).sum(axis=2).argmin(axis=1) == labels[-BATCH:]
    assert right.mean() < 0.35


def test_the_same_bytes_again_and_others_by_another_seed(written: Path, tmp_path: Path) -> None:
    for seed in ("1", "2"):
        command: list[str | Path] = [sys.executable, SCRIPT, tmp_path / seed, "--batch", str(BATCH), "--seed", seed]
        subprocess.run(command, check=True, capture_output=True)
    for path in written.glob("*.bin"):
        assert (tmp_path / "1" / path.name).read_bytes() == path.read_bytes()
        assert (tmp_path / "2" / path.name).read_bytes() != path.read_bytes()


def test_too_few_images_for_all_classes_are_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "none", "--batch", "9"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "at least 10" in done.stderr
    assert not (tmp_path / "none").exists()
