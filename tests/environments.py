"""The environments that learners run in, for tests that start a framework's program without a stack."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.e2e.stack import ENVIRONMENTS

FIRST_RUN = 1500
"""Seconds that a test may take on a machine's first run, which builds the environment (Horovod is compiled)."""


@cache
def python_of(image: str) -> Path:
    """The interpreter of an image's environment on this machine, built if need be."""
    done = subprocess.run(
        [sys.executable, "-m", "weft_workers.environments", "python", image],
        env={**os.environ, "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())
