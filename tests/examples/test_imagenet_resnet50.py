"""Checks of imagenet-resnet50 without training: manifests, copies, the learning rate, the options."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from weft_core.catalogue import Catalogue
from weft_core.manifest import parse_manifest
from weft_core.settings import Settings

FOLDER = Path(__file__).parents[2] / "examples/imagenet-resnet50"
MANIFESTS = {
    "pytorch/manifest.yml": ("imagenet-resnet50-pytorch", "horovod:0.28.1-torch2.13", "horovod"),
    "pytorch/manifest-torchrun.yml": ("imagenet-resnet50-torchrun", "pytorch:2.13.0", "torchrun"),
    "tensorflow/manifest.yml": ("imagenet-resnet50-tensorflow", "horovod:0.28.1-tf2.21", "horovod"),
    "keras/manifest.yml": ("imagenet-resnet50-keras", "horovod:0.28.1-tf2.21", "horovod"),
}


@pytest.mark.parametrize("path", MANIFESTS)
def test_its_manifest(path: str) -> None:
    parsed = parse_manifest((FOLDER / path).read_bytes(), Settings())
    manifest = parsed.manifest
    assert (manifest.name, manifest.framework.image, manifest.framework.launcher) == MANIFESTS[path]
    assert Catalogue.load().get(manifest.framework.image)
    assert manifest.notes == []
    assert parsed.credentials == {}
    assert f"imagenet-resnet50/{path}" in (FOLDER / "README.md").read_text()


def test_every_manifest_is_here() -> None:
    assert {str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/manifest*.yml")} == MANIFESTS.keys()


@pytest.mark.parametrize(
    ("file", "others"),
    [
        ("pytorch/recipe.py", ("tensorflow", "keras")),
        ("pytorch/report.py", ("tensorflow", "keras")),
        ("tensorflow/model.py", ("keras",)),
        ("tensorflow/data.py", ("keras",)),
        ("tensorflow/gang.py", ("keras",)),
    ],
)
def test_copies_are_alike(file: str, others: tuple[str, ...]) -> None:
    """Each folder is submitted alone, so each has its own; a change belongs in all."""
    for other in others:
        assert (FOLDER / other / Path(file).name).read_text() == (FOLDER / file).read_text()


@pytest.fixture
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("resnet50_recipe", FOLDER / "pytorch/recipe.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def options(recipe: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    return recipe.options("what it is")


def test_the_learning_rate_is_that_of_the_paper(recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    args = options(recipe, monkeypatch, "--batch-size", "32")
    rate = recipe.learning_rate
    # 256 processes × 32 images = 8192 images a step: 32 × 0.1 after the warm-up, which begins with one process's.
    assert rate(args, 256, 0) == pytest.approx(0.0125)
    assert rate(args, 256, 2.5) == pytest.approx((0.0125 + 3.2) / 2)
    assert [rate(args, 256, epoch) for epoch in (5, 29.9, 30, 59.9, 60, 80, 89)] == pytest.approx(
        [3.2, 3.2, 0.32, 0.32, 0.032, 0.0032, 0.0032]
    )
    assert rate(args, 1, 0) == rate(args, 1, 10) == pytest.approx(0.0125)


def test_the_learning_rates_options_take_effect(recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--base-lr 0.2 --batch-size 256 --warmup-epochs 0 --decay-epochs 1 3 --decay-factor 0.5"
    args = options(recipe, monkeypatch, *words.split())
    assert [recipe.learning_rate(args, 2, epoch) for epoch in (0, 1, 2, 3)] == pytest.approx([0.4, 0.2, 0.2, 0.1])
    none = options(recipe, monkeypatch, "--decay-epochs")
    assert recipe.learning_rate(none, 1, 89) == recipe.learning_rate(none, 1, 10)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--batch-size 0", "--batch-size must be at least 1, not 0"),
        ("--image-size 31", "32 is the least"),
        ("--depth 49", "invalid choice"),
        ("--amp float8", "invalid choice"),
    ],
)
def test_what_makes_no_sense_is_refused(
    recipe: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    says: str,
) -> None:
    with pytest.raises(SystemExit) as refused:
        options(recipe, monkeypatch, *words.split())
    assert refused.value.code == 2
    assert says in capsys.readouterr().err
