"""The machine's GPU, and a stack that has it. Where there is none, these tests are reported as not run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.stack import Stack, manifest, running
from tests.gpu.machine import REQUIRED, GpuMachine, NotHere, find_gpu

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> GpuMachine:
    try:
        return find_gpu(tmp_path_factory.mktemp("pretend"))
    except NotHere as why:
        if REQUIRED:
            pytest.fail(str(why), pytrace=False)
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def gpu_stack(gpu: GpuMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("stack") / "home", gpu.variables) as started:
        yield started


def gpu_manifest(gpu: GpuMachine, command: str, *, launcher: str = "none", **changes: Any) -> dict[str, Any]:
    """A manifest for one of the programs, in the environment that is there, with one GPU."""
    framework = {"name": "custom", "version": str(gpu.environment), "launcher": launcher, "command": command}
    return manifest(command, **{"gpus": 1, "cpus": 1, "memory": "8 GiB", "framework": framework, **changes})
