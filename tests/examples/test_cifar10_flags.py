"""Every flag of cifar10-resnet18 takes effect: two processes with Horovod, one flag after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.environments import FIRST_RUN, python_of
from tests.recorded import recorded

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "cifar10-resnet18"
DRAWING = EXAMPLES / "data/cifar10.py"
PROGRAM = Path(__file__).parent / "programs" / "cifar10_flags.py"
# 5 × 16 images, of which each of two processes takes 40 an epoch: 4 passes of 10.
PASSES = [10, 10, 10, 10]

pytestmark = pytest.mark.timeout(FIRST_RUN)


def run(work: Path) -> None:
    data = work / "data"
    subprocess.run([sys.executable, DRAWING, data, "--batch", "16"], check=True)
    python = python_of("horovod")
    environment = {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(FOLDER),
        "OMP_NUM_THREADS": "1",
        "HOROVOD_CYCLE_TIME": "20",  # milliseconds; in each cycle the processes talk to each other
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "600",  # one process may import its framework 30 s later than the other
        "DATA_DIR": str(data),
        "RESULT_DIR": str(work),
        "CHECKPOINT_DIR": str(work),
    }
    horovodrun: list[str | Path] = [python.parent / "horovodrun", "-np", "2", "--gloo", "--network-interfaces", "lo"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.alone", *horovodrun, python, PROGRAM, work],
        cwd=EXAMPLES.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """What the program saw, in each of the two processes."""
    work = recorded("cifar10-flags", "horovod", [FOLDER, PROGRAM, DRAWING, Path(__file__)], run)
    return [json.loads((work / f"found-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def cases(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By the first process, which speaks for all."""
    by_name: dict[str, dict[str, Any]] = found[0]["cases"]
    return by_name


def rates(case: dict[str, Any]) -> list[float]:
    return [step["lr"] for step in case["steps"]]


def losses(case: dict[str, Any]) -> list[float]:
    return [float(line.split("loss ")[1].split()[0]) for line in case["lines"] if "  step " in line]


def test_without_any_other_flag(cases: dict[str, Any]) -> None:
    base = cases["base"]
    assert base["passes"] == PASSES
    assert [step["after"] for step in base["steps"]] == [1, 2, 3, 4]
    assert base["sent_types"] == ["torch.float32"]
    assert cases["again"]["weights"] == base["weights"]


def test_both_processes_do_the_same_on_other_images(found: list[dict[str, Any]]) -> None:
    first, second = (each["cases"]["no_augment"] for each in found)
    assert first["steps"] == second["steps"]
    assert (first["passes"], first["sent"]) == (second["passes"], second["sent"])
    assert first["first_images"] != second["first_images"]


def test_lr(cases: dict[str, Any]) -> None:
    assert rates(cases["base"])[0] == pytest.approx(0.1 * 2)  # two processes
    assert rates(cases["lr"]) == pytest.approx([2 * rate for rate in rates(cases["base"])])
    assert cases["lr"]["weights"] != cases["base"]["weights"]


def test_the_rate_falls_from_step_to_step_to_almost_nothing(cases: dict[str, Any]) -> None:
    falling = rates(cases["epochs"])
    assert len(falling) == 8
    assert all(rate > other for rate, other in pairwise(falling))
    assert falling[-1] < 0.04 * falling[0]


def test_epochs(cases: dict[str, Any]) -> None:
    assert cases["epochs"]["passes"] == PASSES * 2
    tested = [line.split()[1] for line in cases["epochs"]["lines"] if "test accuracy" in line and "epoch" in line]
    assert tested == ["1/2", "2/2"]


def test_batch_size(cases: dict[str, Any]) -> None:
    assert cases["batch_size"]["passes"] == [20, 20]
    assert len(cases["batch_size"]["steps"]) == 2


def test_batches_per_allreduce(cases: dict[str, Any]) -> None:
    """Four times the images a step, in passes of the same size: a quarter of the steps and of what is sent, at four
    times the rate."""
    base, four = cases["base"], cases["batches_per_allreduce"]
    assert four["passes"] == base["passes"]
    assert [step["after"] for step in four["steps"]] == [4]
    assert four["sent"] * 4 == base["sent"]
    assert four["sent_bytes"] * 4 == base["sent_bytes"]
    assert rates(four)[0] == pytest.approx(4 * rates(base)[0])


def test_batches_per_allreduce_that_does_not_divide_the_epoch(cases: dict[str, Any]) -> None:
    assert [step["after"] for step in cases["uneven"]["steps"]] == [3, 4]
    assert cases["uneven"]["sent"] * 2 == cases["base"]["sent"]


def test_fp16_allreduce(cases: dict[str, Any]) -> None:
    base, half = cases["base"], cases["fp16_allreduce"]
    assert half["sent_types"] == ["torch.float16"]
    assert half["sent"] == base["sent"]
    assert half["sent_bytes"] * 2 == base["sent_bytes"]
    assert half["stored_types"] == base["stored_types"]  # only what is sent is shorter
    assert half["weights"] != base["weights"]
    assert losses(half) == pytest.approx(losses(base), rel=0.02)


def test_warmup_epochs(cases: dict[str, Any]) -> None:
    """From the rate of one process to that of two, batch by batch over two epochs, and only then down."""
    warmed = rates(cases["warmup"])
    assert warmed[:9] == pytest.approx([0.1 + 0.1 * step / 8 for step in range(9)])
    assert all(rate > other for rate, other in pairwise(warmed[8:]))


@pytest.mark.parametrize(("flag", "value"), [("momentum", 0.5), ("weight_decay", 0.1)])
def test_momentum_and_weight_decay(cases: dict[str, Any], flag: str, value: float) -> None:
    assert {step[flag] for step in cases[flag]["steps"]} == {value}
    assert cases[flag]["weights"] != cases["base"]["weights"]


def test_label_smoothing(cases: dict[str, Any]) -> None:
    assert losses(cases["label_smoothing"])[0] != losses(cases["base"])[0]
    assert cases["label_smoothing"]["weights"] != cases["base"]["weights"]


def test_augment(found: list[dict[str, Any]]) -> None:
    """Without it, images come as they are in the files; with it, black comes in at their sides."""
    as_they_are = set(found[0]["images"])
    assert set(found[0]["cases"]["no_augment"]["first_images"]) <= as_they_are
    assert not set(found[0]["cases"]["base"]["first_images"]) <= as_they_are


def test_width(cases: dict[str, Any]) -> None:
    narrow, wide = (
        int(next(line for line in cases[name]["lines"] if "weights;" in line).split()[0].replace(",", ""))
        for name in ("base", "width")
    )
    assert wide > 3 * narrow


def test_seed(cases: dict[str, Any]) -> None:
    assert cases["seed"]["first_images"] != cases["no_augment"]["first_images"]


def test_log_every(cases: dict[str, Any]) -> None:
    assert len(losses(cases["base"])) == 4
    assert len(losses(cases["no_augment"])) == 2


def test_test_batch_size(cases: dict[str, Any]) -> None:
    assert cases["base"]["tests"] == [8]
    assert cases["no_augment"]["tests"] == [3, 3, 2]


def test_no_cuda(found: list[dict[str, Any]]) -> None:
    assert [each["devices"] for each in found] == [{"with": f"cuda:{rank}", "without": "cpu"} for rank in (0, 1)]


def test_an_interrupted_job_goes_on_where_it_was(cases: dict[str, Any]) -> None:
    assert cases["interrupted"]["passes"] == PASSES
    resumed = cases["resumed"]
    assert resumed["passes"] == PASSES
    assert rates(resumed) == rates(cases["undisturbed"])[4:]
    assert resumed["weights"] == pytest.approx(cases["undisturbed"]["weights"], rel=1e-6, abs=1e-6)
    assert any(line.startswith("resuming after epoch 1 ") for line in resumed["lines"])


def test_no_resume(cases: dict[str, Any]) -> None:
    assert cases["no_resume"]["passes"] == PASSES * 2
    assert cases["no_resume"]["weights"] == cases["undisturbed"]["weights"]


def test_resume(found: list[dict[str, Any]], cases: dict[str, Any]) -> None:
    assert cases["resume"]["weights"] == cases["resumed"]["weights"]
    for each in found:  # also the process that does not look itself
        assert each["cases"]["resume_nothing"]["failure"].startswith("--resume: no checkpoint.pt in CHECKPOINT_DIR")


def test_resume_from_an_earlier_jobs_results(cases: dict[str, Any]) -> None:
    """One epoch was trained there, of two that are wanted now."""
    assert cases["resume_earlier_job"]["passes"] == PASSES
    assert any("epoch 2/2" in line for line in cases["resume_earlier_job"]["lines"])


def test_resume_when_all_is_done_only_tests(cases: dict[str, Any]) -> None:
    assert cases["resume_whole"]["passes"] == []
    assert cases["resume_whole"]["weights"] == cases["undisturbed"]["weights"]
    assert any(line.startswith("nothing left to train") for line in cases["resume_whole"]["lines"])


def test_a_checkpoint_of_another_width_is_told(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert each["cases"]["other_width"]["failure"] == "the checkpoint is of a network with --width 8, not 16"
