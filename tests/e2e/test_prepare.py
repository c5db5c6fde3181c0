"""Data sets that `weft data prepare` has put into the embedded S3, read back by the frameworks that train on them."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from scipy.io import loadmat
from tests.e2e.stack import PROGRAMS, REPOSITORY, Stack

CLASSES, TRAIN, VALIDATION = 6, 10, 15


@pytest.fixture(scope="module")
def ilsvrc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A miniature ILSVRC2012; one of its 60 training images is cut off."""
    folder = tmp_path_factory.mktemp("ilsvrc")
    sizes = ("--classes", CLASSES, "--train", TRAIN, "--validation", VALIDATION, "--size", 64)
    program = REPOSITORY / "examples/data/imagenet.py"
    subprocess.run([sys.executable, str(program), str(folder), *map(str, sizes)], check=True)
    return folder


def true_classes(ilsvrc: Path) -> dict[str, str]:
    """The wnid of each image by its name, from the archives' own files: the devkit as scipy reads it."""
    classes = {}
    with tarfile.open(ilsvrc / "ILSVRC2012_devkit_t12.tar.gz") as tar:
        meta = loadmat(tar.extractfile("ILSVRC2012_devkit_t12/data/meta.mat"), squeeze_me=True)["synsets"]
        truth = tar.extractfile("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt")
        assert truth
        wnids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in meta}
        for number, line in enumerate(truth.read().split(), 1):
            classes[f"ILSVRC2012_val_{number:08}"] = wnids[int(line)]
    with tarfile.open(ilsvrc / "ILSVRC2012_img_train.tar") as outer:
        for member in outer:
            with tarfile.open(fileobj=outer.extractfile(member)) as inner:
                classes |= {name.removesuffix(".JPEG"): member.name.removesuffix(".tar") for name in inner.getnames()}
    return classes


# The first run builds TensorFlow's environment.
def test_tensorflow_reads_every_record_that_was_put_into_s3(stack: Stack, ilsvrc: Path, tmp_path: Path) -> None:
    place = "default:prepared/imagenet/64"
    done = stack.weft("data", "prepare", "imagenet", str(ilsvrc), place, "--resize", "64", "--records", "16")
    assert f"train {CLASSES * TRAIN - 1}, validation {VALIDATION}: 5 files" in done.stderr
    assert "1 corrupt image left out" in done.stderr
    stack.weft("data", "get", place, str(tmp_path / "back"))
    python = subprocess.run(
        [sys.executable, "-m", "weft_workers.environments", "python", "tensorflow"],
        env=stack.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    command = [python, str(PROGRAMS / "read_tfrecords.py"), str(tmp_path / "back")]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    about = json.loads((tmp_path / "back/dataset.json").read_bytes())
    truth = true_classes(ilsvrc)
    names = []
    for file, rows in found.items():
        assert int(file.removesuffix(".tfrecord").rpartition("-")[2]) == len(rows)
        for label, name, shape in rows:
            wnid, _, image = name.partition("/")
            assert (about["classes"][label], wnid, shape) == (truth[image], truth[image], [64, 64, 3])
            names.append(image)
    assert len(names) == len(set(names)) == CLASSES * TRAIN - 1 + VALIDATION
    (lost,) = set(truth) - set(names)
    report = json.loads((tmp_path / "back/report.json").read_bytes())
    assert [entry["image"] for entry in report["corrupt"]] == [f"{truth[lost]}/{lost}"]
    assert about["classes"] == sorted(set(truth.values()))
    for split, told in about["splits"].items():
        assert {file["name"]: file["records"] for file in told["files"]} == {
            file: len(rows) for file, rows in found.items() if file.startswith(f"{split}-")
        }
