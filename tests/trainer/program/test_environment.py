"""The environment of the user's program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.trainer.agents import Launch, spec
from tests.trainer.conftest import StartApi

from weft_trainer.folders import Folders
from weft_trainer.program.environment import allocation_default, build_environment, device_default
from weft_trainer.program.hub import hub_defaults
from weft_trainer.spec import parse_spec


class _Folder:
    def __getattr__(self, name: str) -> Path:
        return Path("/learner") / name


def environment(**given: Any) -> dict[str, str]:
    return build_environment(parse_spec(spec("x") | given), cast(Folders, _Folder()), {})


def mlflow_of(**given: Any) -> dict[str, str]:
    agent = {"WEFT_API_URL": "http://weft:8080/", "WEFT_ATTEMPT_TOKEN": "weft_a_secret", "MLFLOW_TRACKING_URI": "old"}
    env = build_environment(parse_spec(spec("x") | given), cast(Folders, _Folder()), agent)
    assert "weft_a_secret" not in env.values()
    assert env.pop("MLFLOW_DISABLE_TELEMETRY") == given.get("env", {}).get("MLFLOW_DISABLE_TELEMETRY", "true")
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
    assert mlflow_of(env={"MLFLOW_DISABLE_TELEMETRY": "false"}) == {"MLFLOW_TRACKING_URI": "old"}


def test_parameters_are_in_a_file_where_there_are_any() -> None:
    for given, found in (({}, None), ({"parameters": {"lr": 0.1}}, "/learner/parameters")):
        env = build_environment(parse_spec(spec("x") | given), cast(Folders, _Folder()), {})
        assert env.get("WEFT_PARAMETERS_FILE") == found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": "FOLDER"}),
        ({"HF_HUB_OFFLINE": "0"}, {"HF_HUB_CACHE": "FOLDER"}),
        ({"HF_TOKEN": "x"}, {"HF_HUB_CACHE": "FOLDER"}),  # somebody means to ask the Hub
        ({"HF_HOME": "/mine"}, {"HF_HUB_OFFLINE": "1"}),
    ],
)
def test_the_hub_is_asked_for_nothing_that_was_brought(
    given: dict[str, str], expected: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "models--team--tiny/snapshots/0a1b").mkdir(parents=True)
    found = {name: str(value).replace(str(tmp_path), "FOLDER") for name, value in hub_defaults(tmp_path, given).items()}
    assert found == expected


def test_a_model_in_a_plain_folder_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "models--team--tiny").mkdir()
    assert hub_defaults(tmp_path, {}) == {"HF_HUB_OFFLINE": "1"}
    assert not {name for name in environment() if name.startswith("HF_")}, "no pretrained model"
    assert environment(pretrained={"endpoint": "x", "container": "x"})["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(
    ("given", "default"),
    [
        ({}, {"ACCELERATE_USE_CPU": "true"}),
        ({"gpus": 1}, {}),
        ({"extra": {"habana.ai/gaudi": 1}}, {}),
    ],
)
def test_accelerate_uses_cpus_where_there_are_no_devices(given: dict[str, Any], default: dict[str, str]) -> None:
    assert device_default(parse_spec(spec("x") | given)) == default


@pytest.mark.parametrize(("memory", "kept"), [(None, False), ((1 << 30) - 1, False), (1 << 30, True)])
def test_a_program_with_a_gibibyte_keeps_what_it_frees(
    start_api: StartApi, launch: Launch, memory: int | None, kept: bool
) -> None:
    """glibc takes the settings: a block of 16 MiB is no mapping of its own, and stays when it is free."""
    program = "import ctypes; libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; "
    program += "libc.free.argtypes = [ctypes.c_void_p]; block = libc.malloc(16 << 20); "
    program += "used = lambda: int(open('/proc/self/statm').read().split()[0]) * 4096; before = used(); "
    program += "libc.free(block); print(before - used() < 8 << 20)"
    given = {} if memory is None else {"memory": memory}
    assert (allocation_default(memory) != {}) is kept
    api = start_api(f'python -c "{program}"', **given)
    assert launch(api).wait() == 0
    assert api.learners[0].lines == [str(kept)]
    api = start_api("echo $MALLOC_TOP_PAD_", env={"MALLOC_TOP_PAD_": "1"}, **given)
    assert launch(api).wait() == 0
    assert api.learners[0].lines == ["1"], "the manifest's"


@pytest.mark.parametrize(
    ("learners", "env", "image", "found"),
    [
        (2, {}, {}, "true"),
        (2, {"ACCELERATE_USE_CPU": "no"}, {"ACCELERATE_USE_CPU": "yes"}, "no"),  # the manifest's
        (2, {}, {"ACCELERATE_USE_CPU": "yes"}, "yes"),
        (1, {}, {}, ""),
    ],
)
def test_the_default_is_for_gangs_and_gives_way(
    start_api: StartApi, launch: Launch, learners: int, env: dict[str, str], image: dict[str, str], found: str
) -> None:
    api = start_api('echo "=$ACCELERATE_USE_CPU"', learners=learners, env=env)
    agents = [launch(api, rank, **image) for rank in range(learners)]
    assert [agent.wait() for agent in agents] == [0] * learners
    assert api.learners[0].lines == [f"={found}"]
