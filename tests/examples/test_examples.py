"""What can be said about the examples without training: their manifests are right and their copies are alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft_core.catalogue import Catalogue
from weft_core.manifest import parse_manifest
from weft_core.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = {
    "mnist-horovod-pytorch": ("horovod:0.28.1-torch2.13", "horovod", 2),
    "mnist-horovod-tensorflow": ("horovod:0.28.1-tf2.21", "horovod", 2),
    "mnist-torchrun": ("pytorch:2.13.0", "torchrun", 2),
    "mnist-tensorflow-mirrored": ("tensorflow:2.21.0", "none", 1),
}


@pytest.mark.parametrize("name", JOBS)
def test_its_manifest(name: str) -> None:
    parsed = parse_manifest((EXAMPLES / name / "manifest.yml").read_bytes(), Settings())
    manifest = parsed.manifest
    framework = manifest.framework
    assert manifest.name == name
    assert (framework.image, framework.launcher, manifest.learners) == JOBS[name]
    assert Catalogue.load().get(framework.image)
    assert manifest.notes == []
    assert parsed.credentials == {}
    # Two cores are what the smallest machine has that examples and demo are for.
    assert manifest.resources.cpus * manifest.learners <= 2


def test_every_job_is_here() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/manifest.yml")} == JOBS.keys()


@pytest.mark.parametrize("name", JOBS)
def test_it_has_what_a_reader_looks_for(name: str) -> None:
    folder = EXAMPLES / name
    assert {path.name for path in folder.iterdir()} >= {
        "README.md",
        "evaluate.py",
        "manifest.yml",
        "model.py",
        "train.py",
    }
    assert f"examples/{name}/manifest.yml" in (folder / "README.md").read_text()


@pytest.mark.parametrize("file", ["model.py", "evaluate.py"])
@pytest.mark.parametrize(
    ("one", "other"),
    [("mnist-horovod-pytorch", "mnist-torchrun"), ("mnist-horovod-tensorflow", "mnist-tensorflow-mirrored")],
)
def test_copies_are_alike(one: str, other: str, file: str) -> None:
    """Each folder is submitted alone, so each has its own; a change belongs in both."""
    assert (EXAMPLES / one / file).read_text() == (EXAMPLES / other / file).read_text()
