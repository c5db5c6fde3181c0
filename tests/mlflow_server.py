"""MLflow's own server, to compare Weft with."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import mlflow
from tests.e2e.stack import eventually
from tests.environments import python_with
from tests.servers import free_port


@contextmanager
def mlflow_server(folder: Path, database: str, *options: str) -> Iterator[str]:
    """The URL of a server of the installed client's version. The first one on a machine installs it.

    Args:
        folder: for its artifacts and its log.
        database: the URL of an empty database.
        options: further ones of `mlflow server`.
    """
    python = python_with(f"mlflow=={mlflow.__version__}", "psycopg==3.3.9", "psycopg-binary==3.3.9")
    port = free_port()
    command = [str(python), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", database, "--artifacts-destination", str(folder / "artifacts"), *options]
    env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = folder / "mlflow.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output, start_new_session=True)

    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            return httpx.get(f"{url}/health").is_success
        except httpx.TransportError:
            return False

    try:
        eventually(answers, "MLflow's server", 600)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
