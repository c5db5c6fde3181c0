"""System metrics of a learner, and NVIDIA's management library in a version that is made for the test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.nvml import make_library
from tests.trainer.agents import Launch
from tests.trainer.conftest import StartApi

WORK = """python -c "
import os
data = b'x' * (32 << 20)
with open('data', 'wb') as file:
    file.write(data); os.fsync(file.fileno())
while not os.path.exists('go'): sum(range(10000))
" """


def test_a_learners_cpu_memory_disk_and_network(start_api: StartApi, launch: Launch) -> None:
    api = start_api(WORK, system_metrics_seconds=0.3, memory=1 << 30)
    agent = launch(api)
    learner = api.learners[0]

    def most(name: str) -> float:
        return max((value for _, value in learner.points(name, "system", "system")), default=0)

    # Of a busy machine it may get little.
    api.wait_for(lambda: most("cpu_percent") > 5 and most("memory_bytes") > 32 << 20)
    api.wait_for(lambda: most("disk_used_bytes") >= 32 << 20)
    (agent.workdir / "model" / "go").touch()
    assert agent.wait() == 0
    [*_, last] = [record for record in learner.records if record["kind"] == "system"]
    assert last["group"] == "system"
    assert set(last["values"]) >= {
        "cpu_percent",
        "memory_bytes",
        "memory_limit_bytes",
        "disk_read_bytes_per_s",
        "disk_write_bytes_per_s",
        "net_in_bytes_per_s",
        "net_out_bytes_per_s",
    }
    assert last["values"]["memory_limit_bytes"] == 1 << 30
    assert not any(name.startswith("gpu") for name in last["values"])


def test_without_system_metrics(start_api: StartApi, launch: Launch) -> None:
    api = start_api("sleep 0.5", system_metrics_seconds=0)
    assert launch(api).wait() == 0
    assert api.learners[0].records == []


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_gpus(start_api: StartApi, launch: Launch, tmp_path: Path) -> None:
    make_library(tmp_path)
    api = start_api("while ! [ -e go ]; do sleep 0.05; done", system_metrics_seconds=0.2, heartbeat_seconds=0.2)
    agent = launch(api, LD_LIBRARY_PATH=str(tmp_path), CUDA_VISIBLE_DEVICES="1,GPU-2")
    learner = api.learners[0]
    api.wait_for(lambda: any("gpu0_percent" in record["values"] for record in learner.records))
    api.wait_for(lambda: any(beat["system"].get("gpus") for beat in learner.heartbeats))
    (agent.workdir / "model" / "go").touch()
    assert agent.wait() == 0
    values = learner.records[-1]["values"]
    assert {name: value for name, value in values.items() if name.startswith("gpu")} == {
        "gpu0_percent": 20,
        "gpu0_memory_bytes": 7,
        "gpu0_temperature_c": 60,
        "gpu0_power_w": 123.456,
        "gpu1_percent": 30,
        "gpu1_memory_bytes": 7,
        "gpu1_temperature_c": 60,
    }
    assert [gpu["index"] for gpu in learner.heartbeats[-1]["system"]["gpus"]] == [1, 2]
