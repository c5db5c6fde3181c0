"""The processes of the service, and learners' agents, load no library that few of them use: each takes megabytes of all
of them, and time at each start."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = "import importlib, sys; importlib.import_module(sys.argv[1]); print(*sys.modules)"

_NEEDLESS = {"boto3", "joserfc", "opentelemetry.sdk", "rich", "s3transfer"}


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        (
            "weft_api.__main__",
            {"alembic", "arro3.io", "authlib", "kubernetes", "mlflow", "weft_workers", "zxcvbn"} | _NEEDLESS,
        ),
        (
            "weft_workers.sweeper",
            {"alembic", "fastapi", "httpx", "kubernetes", "numpy", "weft_api", "zxcvbn"} | _NEEDLESS,
        ),
        (
            "weft_trainer.agent",
            {
                "asyncio",
                "boto3",
                "dataclasses",
                "importlib.metadata",
                "numpy",
                "pickle",
                "psutil",
                "requests",
                "tempfile",
                "torch",
                "urllib.request",
                "uuid",
                "weft_trainer.data",
                "weft_trainer.launchers.horovod",
                "weft_trainer.launchers.ray",
                "weft_trainer.launchers.slurm",
                "weft_trainer.phases.elastic",
                "xml.etree.ElementTree",
            },
        ),
    ],
)
def test_a_process_loads_no_more(module: str, needless: set[str]) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, module], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert module in loaded
    assert not loaded & needless
