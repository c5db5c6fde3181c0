"""The environments that learners run in, for tests that start a framework's program without a stack."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.e2e.stack import ENVIRONMENTS

from weft_core.catalogue import Catalogue
from weft_workers.environments import EnvironmentBuilder
from weft_workers.supervision.installer import Installer

FIRST_RUN = 2400
"""Seconds for a test that may build an environment (Horovod is compiled) or fetch a cluster's parts: what a machine's
first run does, while it is busy."""


@cache
def python_of(image: str) -> Path:
    """The interpreter of an image's environment on this machine, built if need be."""
    catalogue = Catalogue.load()
    framework, _, version = image.partition(":")
    found = catalogue.get(image) or catalogue.resolve(framework, version or None)
    return EnvironmentBuilder(Path(ENVIRONMENTS)).build(found.reference).python


def python_with(*packages: str) -> Path:
    """An interpreter with these packages (``name==version``), built if need be."""
    folder = Path(ENVIRONMENTS) / "-".join(package.replace("==", "-") for package in packages)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"  # written last: a build that was cut off has none
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            installer = Installer.find()
            for command in (
                installer.make(sys.executable, str(folder)),
                installer.install(str(folder / "bin/python"), ["--quiet", *packages]),
            ):
                # Jobs can't write to the environment, so each would compile its packages anew.
                variables = {**dict(installer.variables), "UV_COMPILE_BYTECODE": "1"}
                subprocess.run(command, env={**os.environ, **variables}, check=True)
            done.touch()
    return folder / "bin/python"
