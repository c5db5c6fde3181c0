"""Two processes of imagenet-resnet50 in each framework: an interrupted job goes on after its checkpoint as if nothing
had been, and --fp16-allreduce takes effect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.environments import FIRST_RUN, python_of
from tests.recorded import recorded

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "examples/imagenet-resnet50"
PROGRAM = Path(__file__).parent / "programs" / "imagenet_runs.py"
HOROVODRUN = ("horovod.runner.launch", "-np", "2", "--gloo", "--network-interfaces", "lo")
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")

pytestmark = pytest.mark.timeout(FIRST_RUN)


@pytest.fixture(
    scope="module",
    params=[
        ("pytorch", "horovod:0.28.1-torch2.13", HOROVODRUN),
        ("pytorch", "pytorch:2.13.0", TORCHRUN),
        ("tensorflow", "horovod:0.28.1-tf2.21", HOROVODRUN),
        ("keras", "horovod:0.28.1-tf2.21", HOROVODRUN),
    ],
    ids=["pytorch-horovod", "pytorch-torchrun", "tensorflow", "keras"],
)
def cases(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What came of each run, by the first process, which speaks for all."""
    folder, image, launcher = request.param

    def run(work: Path) -> None:
        done = subprocess.run(
            command(python_of(image), work, *launcher),
            cwd=REPOSITORY,
            env=environment(python_of(image), folder),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

    name = f"imagenet-{folder}-{launcher[0].partition('.')[0]}"
    work = recorded(name, image, [FOLDER / folder, PROGRAM, Path(__file__)], run)
    found: dict[str, dict[str, Any]] = json.loads((work / "found-0.json").read_text())
    return found


def command(python: Path, work: Path, launcher: str, *options: str) -> list[str | Path]:
    program = [] if launcher == TORCHRUN[0] else [python]
    return [sys.executable, "-m", "tests.alone", python, "-m", launcher, *options, *program, PROGRAM, work]


def environment(python: Path, folder: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(FOLDER / folder),
        "OMP_NUM_THREADS": "1",
        "HOROVOD_CYCLE_TIME": "20",  # milliseconds; in each cycle the processes talk to each other
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "600",  # one process may import its framework 30 s later than the other
        "TF_ENABLE_ONEDNN_OPTS": "0",  # the same sums in the same order, always
    }


def epochs(case: dict[str, Any]) -> list[str]:
    """The lines that tell the end of an epoch, without the speed."""
    return [line.rpartition("  ")[0] for line in case["lines"] if re.match(r"epoch \d/\d  loss", line)]


def test_an_interrupted_job_goes_on_as_if_nothing_had_been(cases: dict[str, Any]) -> None:
    undisturbed, resumed = cases["undisturbed"], cases["resumed"]
    assert [len(epochs(case)) for case in (undisturbed, resumed)] == [2, 1]
    assert any(line.startswith("resuming after epoch 1 from ") for line in resumed["lines"])
    assert epochs(resumed)[0].startswith("epoch 2/2  loss")
    assert resumed["weights"] == pytest.approx(undisturbed["weights"], rel=1e-4, abs=1e-5)


def test_fp16_allreduce_sends_16_bits(cases: dict[str, Any]) -> None:
    plain, half = cases["undisturbed"], cases["fp16"]
    assert "float16" in half["sent"]
    assert "float16" not in plain["sent"]
    assert half["weights"] != plain["weights"]  # rounded on the way
    first = [float(epochs(case)[0].split("loss ")[1].split()[0]) for case in (plain, half)]
    assert first[0] == pytest.approx(first[1], rel=0.1)  # and only rounded
