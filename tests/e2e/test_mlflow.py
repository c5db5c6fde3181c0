"""A program that logs with MLflow runs as it is, and the job keeps what it logs."""

from __future__ import annotations

import ast
import fnmatch
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from tests.e2e.stack import Stack, lines, manifest, series
from tests.environments import python_with

# One environment for all libraries, which is built once on a machine.
_PACKAGES = [
    *(f"mlflow=={mlflow.__version__}", "lightning==2.6.6", "transformers==5.23.0", "accelerate==1.15.0"),
    *("keras==3.15.1", "torch==2.13.0"),
]
_LIBRARIES: dict[str, dict[str, Any]] = {
    "lightning": {
        "metrics": {"train_loss": 4, "epoch": 4},
        "params": {"rate": "0.05"},
        "tags": {"team": "vision", "mlflow.runName": "regression"},
        "files": ["epoch=1-step=16/epoch=1-step=16.ckpt"],
    },
    "transformers": {
        "metrics": {"loss": 2, "learning_rate": 2, "train_runtime": 1},
        "params": {"max_steps": "4", "n_embd": "16", "model_type": "gpt2"},
        "tags": {"team": "vision"},
        "files": ["models/*/artifacts/checkpoint-4/model.safetensors"],
    },
    "keras": {
        "metrics": {"loss": 3},
        "params": {"epochs": "3", "optimizer_name": "sgd"},
        "tags": {},
        "files": ["model_summary.txt", "models/*/data/model.keras"],
    },
    "sklearn": {
        "metrics": {"training_score": 1, "training_accuracy_score": 1},
        "params": {"C": "0.5"},
        "tags": {"team": "vision", "estimator_name": "LogisticRegression"},
        "files": ["training_confusion_matrix.png", "models/*/MLmodel"],
    },
}
"""What each logs in tests/e2e/programs/mlflow_loggers.py: metrics with the number of their steps, and files."""


def test_a_program_logs_to_its_job(stack: Stack, tmp_path: Path) -> None:
    # The tests' own environment, which has MLflow.
    framework = {"name": "custom", "version": sys.prefix, "command": "python log_to_mlflow.py"}
    job = stack.train(manifest("", framework=framework)).wait(timeout=900)
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
    job = stack.train(own).wait(timeout=900)
    [shown] = [line for line in lines(job) if "MLFLOW" in line]
    assert ast.literal_eval(shown) == {"MLFLOW_TRACKING_URI", "MLFLOW_DISABLE_TELEMETRY"}


def _refusals(stack: Stack) -> list[str]:
    """What the API has refused of MLflow's calls, and its other calls, of all jobs."""
    told = (stack.home / "logs/api.log").read_text(errors="replace").splitlines()
    return [line for line in told if "/mlflow/" in line][-100:]


@pytest.mark.parametrize("library", _LIBRARIES)
def test_what_libraries_log_is_the_jobs(stack: Stack, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"python mlflow_loggers.py {library}"
    environment = str(python_with(*_PACKAGES).parents[1])
    framework = {"name": "custom", "version": environment, "command": command}
    job = stack.train(manifest(command, framework=framework, cpus=1, memory="2 GiB")).wait(timeout=1400)
    assert job.state == "COMPLETED", lines(job)
    expected = _LIBRARIES[library]
    found = series(stack, job)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", stack.client._transport.server.token or "")
    client = MlflowClient(tracking_uri=stack.client.url)
    logged_metrics = {name: client.get_metric_history(job.id, name) for name in expected["metrics"]}
    # MLflow repeats the values of step 0 for a logged model, if its queue has delivered them by then.
    steps = {name: len({metric.step for metric in history}) for name, history in logged_metrics.items()}
    assert steps == expected["metrics"], logged_metrics
    points = {name: found[name, 1]["points"] for name in expected["metrics"]}
    assert points == {name: len(history) for name, history in logged_metrics.items()}
    logged = {name: job.params.get(name) for name in expected["params"]}
    assert logged == expected["params"], (job.params, lines(job), _refusals(stack))
    files = [file.path for file in job.files()]
    for wanted in expected["files"]:
        assert fnmatch.filter([path or "" for path in files], wanted), (wanted, files)
    # MLflow's client sees the same on the user's machine.
    run = client.get_run(job.id)
    assert {name: run.data.tags.get(name) for name in expected["tags"]} == expected["tags"], run.data.tags
    assert run.data.metrics.keys() >= expected["metrics"].keys()
    assert run.info.status == "FINISHED"
