"""The start of an agent, which every learner of every attempt waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import weft_trainer

_RARELY_NEEDED = (
    "dataclasses",
    "importlib.metadata",
    "inspect",
    "pickle",
    "psutil",
    "tempfile",
    "urllib.request",
    "uuid",
    "xml.etree.ElementTree",
    "weft_trainer.launchers.ray",
    "weft_trainer.phases.elastic",
)
"""Modules that few learners need, or that are slow to import. (docs/design.md says why there are no dataclasses.)"""


def test_the_start_imports_nothing_that_few_learners_need() -> None:
    runtime = str(Path(weft_trainer.__file__).parents[1])
    code = f"import sys, weft_trainer.__main__; print([name for name in {_RARELY_NEEDED} if name in sys.modules])"
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # -S: a package of an environment may import modules at every start of Python.
    command = [sys.executable, "-S", "-c", code]
    ran = subprocess.run(command, env=without | {"PYTHONPATH": runtime}, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
