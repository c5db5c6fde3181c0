"""Checks of the examples without training: their manifests are right and their copies are alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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
    "fashion-ray": ("ray:2.60.0", "ray", 2),
    "cifar10-resnet18": ("horovod:0.28.1-torch2.13", "horovod", 2),
    "cats-dogs-densenet": ("tensorflow:2.21.0", "none", 1),
    "transfer-learning": ("pytorch:2.13.0", "none", 1),
    "llm-finetune": ("pytorch:2.13.0", "torchrun", 1),
    "sweep-mnist": ("pytorch:2.13.0", "none", 1),
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


def test_the_table_has_all_of_them() -> None:
    folders = {path.parent.name for path in EXAMPLES.glob("*/README.md")}
    assert set(re.findall(r"^\| \[([\w-]+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)) == folders


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


@pytest.mark.parametrize(
    ("name", "other", "allowed"),
    [
        ("mnist-torchrun", "manifest-elastic.yml", {"name", "description", "elastic"}),
        (
            "mnist-tensorflow-mirrored",
            "manifest-workers.yml",
            {"name", "description", "learners", "resources", "framework.command", "framework.launcher"},
        ),
        ("mnist-torchrun", "manifest-fsdp.yml", {"name", "description", "framework.command"}),
        ("mnist-horovod-pytorch", "manifest-elastic.yml", {"name", "description", "elastic", "framework.command"}),
        ("fashion-ray", "manifest-horovod.yml", {"name", "description", "framework.command"}),
        (
            "transfer-learning",
            "manifest-base.yml",
            {"name", "description", "framework.command", "data_stores.pretrained_model"},
        ),
        (
            "cats-dogs-densenet",
            "manifest-pretrain.yml",
            {"name", "description", "framework.command"}
            | {f"data_stores.{place}" for place in ("training_data", "pretrained_model", "training_results")},
        ),
        (
            "transfer-learning",
            "manifest-registry.yml",
            {"name", "data_stores.pretrained_model", "data_stores.model"},
        ),
        ("llm-finetune", "manifest-fsdp.yml", {"name", "description", "learners", "framework.command"}),
    ],
)
def test_second_manifests_differ_in_what_they_are_about(name: str, other: str, allowed: set[str]) -> None:
    folder = EXAMPLES / name
    first, second = (
        parse_manifest((folder / file).read_bytes(), Settings()).manifest.model_dump()
        for file in ("manifest.yml", other)
    )
    assert first["notes"] == second["notes"] == []
    differing = {key for key in first if first[key] != second[key]}
    differing = differing - {"framework"} | {f"framework.{key}" for key in _changed(first, second, "framework")}
    if "data_stores" in differing:
        keys = _changed(first["data_stores"], second["data_stores"], 0)
        differing = differing - {"data_stores"} | {f"data_stores.{key}" for key in keys}
    assert differing == allowed
    assert other in (folder / "README.md").read_text()


def _changed(first: Any, second: Any, at: Any) -> set[str]:
    return {key for key in first[at] if first[at][key] != second[at][key]}


@pytest.mark.parametrize("file", ["model.py", "evaluate.py"])
@pytest.mark.parametrize(
    ("folder", "other"),
    [
        ("mnist-horovod-pytorch", "mnist-torchrun"),
        ("sweep-mnist", "mnist-torchrun"),
        ("mnist-horovod-tensorflow", "mnist-tensorflow-mirrored"),
    ],
)
def test_copies_are_alike(folder: str, other: str, file: str) -> None:
    """Each folder is submitted alone, so each has its own; a change belongs in both."""
    assert (EXAMPLES / folder / file).read_text() == (EXAMPLES / other / file).read_text()
