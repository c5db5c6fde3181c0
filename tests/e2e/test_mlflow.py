"""A program that logs with MLflow runs as it is: what it logs is the job's."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.e2e.stack import Stack, lines, manifest, series


def test_a_program_logs_to_its_job(stack: Stack, tmp_path: Path) -> None:
    job = stack.train(manifest(f"{sys.executable} log_to_mlflow.py")).wait(timeout=300)
    assert job.state == "COMPLETED", lines(job)
    assert job.params == {"lr": "0.1", "layers": "[3, 5]"}
    found = series(stack, job)
    assert found.keys() == {("train/loss", 1), ("acc", 1), ("fold/acc", 1)}
    assert (found["acc", 1]["points"], found["acc", 1]["last_step"], found["acc", 1]["last"]) == (5, 4, 0.4)
    assert "texts/notes.txt" in [file.path for file in job.files()]
    shown = stack.weft("show", job.id).stdout
    assert "PARAMETER" in shown
    head, row = stack.weft("list", "--column", "param:lr", "-n", "1").stdout.splitlines()
    assert ("lr" in head.split(), "0.1" in row.split()) == (True, True)

    # Another server that the user names is the user's business, and Weft's token doesn't go there.
    names = "{name for name in __import__('os').environ if name.startswith('MLFLOW')}"
    own = manifest(f'python -c "print({names})"', env={"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"})
    job = stack.train(own).wait(timeout=120)
    assert [line for line in lines(job) if "MLFLOW" in line] == ["{'MLFLOW_TRACKING_URI'}"]
