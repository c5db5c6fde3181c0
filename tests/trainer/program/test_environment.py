"""The environment of the user's program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.trainer.agents import spec

from weft_trainer.folders import Folders
from weft_trainer.program.environment import build_environment
from weft_trainer.spec import parse_spec


class _Folder:
    def __getattr__(self, name: str) -> Path:
        return Path("/learner") / name


def mlflow_of(**given: Any) -> dict[str, str]:
    agent = {"WEFT_API_URL": "http://weft:8080/", "WEFT_ATTEMPT_TOKEN": "weft_a_secret", "MLFLOW_TRACKING_URI": "old"}
    env = build_environment(parse_spec(spec("x") | given), cast(Folders, _Folder()), agent)
    assert "weft_a_secret" not in env.values()
    return {name: value for name, value in env.items() if name.startswith("MLFLOW_")}


def test_mlflows_client_logs_to_the_job_unless_the_manifest_names_a_server() -> None:
    access = {"token": "weft_m_1.0", "run_id": "job-1"}
    ours = {
        "MLFLOW_TRACKING_URI": "http://weft:8080",
        "MLFLOW_TRACKING_TOKEN": "weft_m_1.0",
        "MLFLOW_RUN_ID": "job-1",
    }
    assert mlflow_of(mlflow=access) == ours
    assert mlflow_of(mlflow=access | {"new": 1}, env={"MLFLOW_RUN_ID": "x"}) == ours | {"MLFLOW_RUN_ID": "x"}
    elsewhere = {"MLFLOW_TRACKING_URI": "http://other"}
    assert mlflow_of(mlflow=access, env=elsewhere) == elsewhere
    assert mlflow_of() == {"MLFLOW_TRACKING_URI": "old"}, "an older service gives no access"
