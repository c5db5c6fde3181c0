"""GPUs by `weft run`, without any server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.gpu.conftest import PROGRAMS, gpu_manifest
from tests.gpu.machine import GpuMachine
from tests.gpu.test_stack import TIMEOUT, check_precisions

pytestmark = pytest.mark.timeout(TIMEOUT)
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def weft_run(gpu: GpuMachine, tmp_path: Path) -> Run:
    """Runs a command of a manifest, with a home of its own."""

    def run(command: str, *arguments: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        wanted = gpu_manifest(gpu, command, **changes)
        del wanted["data_stores"]
        path = tmp_path / "manifest.yml"
        path.write_text(yaml.safe_dump(wanted))
        return subprocess.run(
            ["weft", "run", str(path), str(PROGRAMS), *arguments],
            cwd=tmp_path,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("WEFT_")},
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
                **gpu.variables,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )

    return run


def told(done: subprocess.CompletedProcess[str], word: str) -> list[Any]:
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    found = [line.split(f"{word} ", 1)[1] for line in done.stdout.splitlines() if f"{word} {{" in line]
    return [json.loads(text) for text in found]


def test_a_learner_sees_the_gpus_that_it_was_given(gpu: GpuMachine, weft_run: Run) -> None:
    [seen] = told(weft_run("python seen.py"), "seen")
    assert (seen["visible"], seen["count"]) == ("0", "1")
    assert seen["uuids"] == ([] if gpu.rehearsal else [gpu.uuids[0]])
    [seen] = told(weft_run("python seen.py", "--set", "gpus=0"), "seen")
    assert (seen["visible"], seen["count"], seen["uuids"]) == ("", "0", [])


def test_more_gpus_than_there_are(gpu: GpuMachine, weft_run: Run) -> None:
    done = weft_run("python seen.py", gpus=len(gpu.uuids) + 1)
    assert done.returncode == 10
    assert f"the job asks for {len(gpu.uuids) + 1} GPUs, this machine has {len(gpu.uuids)}" in done.stdout + done.stderr


def test_torchrun_with_nccl(gpu: GpuMachine, weft_run: Run) -> None:
    said = told(weft_run("python collectives.py", launcher="torchrun", gpus=len(gpu.uuids)), "collectives")
    assert {report["backend"] for report in said} == {"gloo" if gpu.rehearsal else "nccl"}
    assert [report["world"] for report in said] == [len(gpu.uuids)] * len(gpu.uuids)


def test_mixed_precision_beside_single(weft_run: Run) -> None:
    check_precisions(told(weft_run("python precision.py"), "precision"))


def test_a_gpu_without_memory_left(weft_run: Run) -> None:
    done = weft_run("python hog.py")
    assert done.returncode == 10
    assert "the GPU ran out of memory (exit code 1): Tried to allocate 4.00 GiB. GPU 0 has" in done.stdout + done.stderr
