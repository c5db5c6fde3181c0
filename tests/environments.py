"""The environments that learners run in, for tests that start a framework's program without a stack."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.e2e.stack import ENVIRONMENTS

from weft_core.catalogue import Catalogue
from weft_workers.environments import EnvironmentBuilder

FIRST_RUN = 1500
"""Seconds that a test may take on a machine's first run, which builds the environment (Horovod is compiled)."""


@cache
def python_of(image: str) -> Path:
    """The interpreter of an image's environment on this machine, built if need be."""
    catalogue = Catalogue.load()
    framework, _, version = image.partition(":")
    found = catalogue.get(image) or catalogue.resolve(framework, version or None)
    return EnvironmentBuilder(Path(ENVIRONMENTS)).build(found.reference).python


def python_with_mlflow(version: str) -> Path:
    """An interpreter with this version of MLflow's client, built if need be."""
    folder = Path(ENVIRONMENTS) / f"mlflow-skinny-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"  # written last: a build that was cut off has none
        if not done.exists():
            uv = [sys.executable, "-m", "uv", "-q"]
            subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(folder)], check=True)
            install = [*uv, "pip", "install", "--python", str(folder / "bin/python"), f"mlflow-skinny=={version}"]
            subprocess.run(install, check=True)
            done.touch()
    return folder / "bin/python"
