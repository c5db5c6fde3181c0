"""Every flag of cats-dogs-densenet takes effect; `--cpu-devices` and the files in S3 are tests/e2e's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.environments import FIRST_RUN, python_of
from tests.recorded import recorded

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "cats-dogs-densenet"
DRAWING = EXAMPLES / "data/cats_dogs.py"
PROGRAM = Path(__file__).parent / "programs" / "cats_dogs_flags.py"

pytestmark = pytest.mark.timeout(FIRST_RUN)


def run(work: Path) -> None:
    subprocess.run([sys.executable, DRAWING, work / "drawn", "--each", "5"], check=True)
    prepare: list[str | Path] = [
        Path(sys.executable).with_name("weft"),
        "data",
        "prepare",
        "imagefolder",
        work / "drawn",
        work / "data",
    ]
    subprocess.run([*prepare, "--validation-share", "0.2"], check=True, capture_output=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(FOLDER),
        "DATA_DIR": str(work / "data"),
        "RESULT_DIR": str(work),
        "CHECKPOINT_DIR": str(work),
    }
    done = subprocess.run(
        [python_of("tensorflow"), PROGRAM, work], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    preparation = EXAMPLES.parent / "data/weft_data"
    work = recorded("cats-dogs-flags", "tensorflow", [FOLDER, PROGRAM, DRAWING, preparation, Path(__file__)], run)
    found: dict[str, Any] = json.loads((work / "found.json").read_text())
    return found


def epochs(case: dict[str, Any]) -> list[list[int]]:
    return [fit["epochs"] for fit in case["fits"]]


def test_two_phases(cases: dict[str, Any]) -> None:
    """First the head alone, then the backbone with it, but never what batch normalisation has counted."""
    head, fine = cases["base"]["fits"]
    assert head["changed"] == []
    assert head["head_changed"]
    assert fine["head_changed"]
    assert "conv3_block1_1_conv" in fine["changed"]
    assert head["counted"] == fine["counted"] == []


def test_epochs(cases: dict[str, Any]) -> None:
    assert epochs(cases["base"]) == [[1], [2]]
    assert epochs(cases["others"]) == [[1, 2], [3, 4, 5]]
    assert [line.split("  ")[0] for line in cases["others"]["lines"] if "epoch" in line and "cross" in line] == [
        "head: epoch 1/2",
        "head: epoch 2/2",
        "fine-tuning: epoch 3/5",
        "fine-tuning: epoch 4/5",
        "fine-tuning: epoch 5/5",
    ]


def test_learning_rates(cases: dict[str, Any]) -> None:
    assert [fit["rate"] for fit in cases["base"]["fits"]] == pytest.approx([0.01, 0.001])
    assert [fit["rate"] for fit in cases["others"]["fits"]] == pytest.approx([0.02, 0.003])


def test_patience(cases: dict[str, Any]) -> None:
    """At a rate of 0 nothing gets better, so fine-tuning ends ``patience`` epochs after its first."""
    assert epochs(cases["patience"]) == [[1], [2, 3, 4]]
    assert epochs(cases["more_patience"]) == [[1], [2, 3, 4, 5, 6]]
    assert any(line.startswith("fine-tuning: took epoch 2,") for line in cases["patience"]["lines"])


@pytest.mark.parametrize(
    ("case", "trained"), [("unfreeze_nothing", set()), ("base", {"conv3"}), ("unfreeze_all", {"conv2", "conv3"})]
)
def test_unfreeze(cases: dict[str, Any], case: str, trained: set[str]) -> None:
    """That many of the two dense blocks, from the top."""
    _, fine = cases[case]["fits"]
    assert {name.split("_")[0] for name in fine["changed"] if "_block" in name} == trained
    assert fine["head_changed"]


def test_blocks(cases: dict[str, Any]) -> None:
    """A smaller network takes what it needs of a larger one's backbone."""
    assert cases["fewer_blocks"]["failure"] is None
    assert cases["fewer_blocks"]["fits"][0]["weights"] < cases["base"]["fits"][0]["weights"]


def test_image_and_batch_size(cases: dict[str, Any]) -> None:
    assert cases["base"]["fits"][0]["images"] == [8, 32, 32, 3]
    assert cases["others"]["fits"][0]["images"] == [4, 40, 40, 3]


def test_dropout(cases: dict[str, Any]) -> None:
    assert [cases[name]["fits"][0]["dropout"] for name in ("base", "others")] == [[0.2], [0.7]]


def test_mirror(cases: dict[str, Any]) -> None:
    """The same images in the same order, of which some, and only some, are the other way around."""
    plain, mirrored = cases["no_mirror"]["fits"][0], cases["base"]["fits"][0]
    assert mirrored["labels"] == plain["labels"]
    assert mirrored["first"] == pytest.approx(plain["first"], rel=1e-5)
    turned = [
        first != pytest.approx(second, rel=1e-5) for first, second in zip(plain["left"], mirrored["left"], strict=True)
    ]
    assert 0 < sum(turned) < len(turned)


def test_seed(cases: dict[str, Any]) -> None:
    assert cases["seed"]["fits"][0]["first"] != cases["no_mirror"]["fits"][0]["first"]


def test_precision(cases: dict[str, Any]) -> None:
    whole, mixed = cases["base"]["fits"][0], cases["mixed"]["fits"][0]
    assert (whole["compute"], whole["optimizer"]) == ("float32", "Adam")
    assert (mixed["compute"], mixed["optimizer"]) == ("float16", "LossScaleOptimizer")
    assert (mixed["variables"], mixed["head"]) == ("float32", "float32")


def test_more_blocks_than_the_backbone_has_are_told(cases: dict[str, Any]) -> None:
    assert (
        "no DenseNet-121 with so many dense blocks: it lacks layer conv4_block1" in cases["too_many_blocks"]["failure"]
    )


def test_no_backbone_is_told(cases: dict[str, Any]) -> None:
    failure = cases["no_backbone"]["failure"]
    assert failure.startswith("expected one backbone.keras in the pretrained model, found 0")
    assert "README.md says how to make one" in failure


def test_an_interrupted_job_goes_on_in_its_phase_with_its_patience(cases: dict[str, Any]) -> None:
    """Interrupted when one epoch had not been better, of the two that end it."""
    assert epochs(cases["resumed"]) == [[4]]
    assert any(line.startswith("resuming after epoch 3 ") for line in cases["resumed"]["lines"])
    assert any(line.startswith("fine-tuning: took epoch 2,") for line in cases["resumed"]["lines"])


def test_a_job_that_had_ended_takes_the_best_weights_and_trains_no_more(cases: dict[str, Any]) -> None:
    assert epochs(cases["ended"]) == [[]]
    assert cases["ended"]["lines"][-1] == cases["resumed"]["lines"][-1]
