"""Launcher ``ray``: real agents with a real Ray cluster of their own, of which nothing is left afterwards.

A cluster takes some 10 seconds to start on two cores, so each test shows several things in one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.processes import all_processes
from tests.trainer.agents import Launch
from tests.trainer.conftest import StartApi

from weft_trainer.launchers import ray_folder

PROGRAMS = Path(__file__).parent / "ray_programs"
ENVIRONMENTS = os.environ.get("WEFT_ENVIRONMENTS_DIR", str(Path.home() / ".cache/weft/environments"))
SECONDS = 1200.0
"""How long a busy machine may take: the Ray of two learners starts some thirty processes, most of which import Ray."""
GIB = 1 << 30


@pytest.fixture(scope="session")
def ray_python() -> str:
    """The interpreter of the image `ray`'s environment; its first use builds that."""
    return subprocess.run(
        [sys.executable, "-m", "weft_workers.environments", "python", "ray"],
        env={**os.environ, "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where this test's nodes have their folders, and nobody else's; short, as sockets are in them."""
    folder = Path(tempfile.mkdtemp(prefix="wr-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def launch(launch: Launch, temporary: Path) -> Launch:
    return partial(launch, TMPDIR=str(temporary))


@pytest.fixture
def clean(tmp_path: Path, temporary: Path) -> Iterator[Callable[[str], list[str]]]:
    """``clean(part of a path)``: the processes that have to do with it. None may be left at the end, nor any folder."""

    def found(part: str = str(tmp_path)) -> list[str]:
        names = []
        for process in all_processes():
            try:
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                    continue
                words = [*process.cmdline(), process.cwd(), *process.environ().values()]
            except psutil.Error:
                continue
            if any(part in word for word in words):
                names.append(f"{process.pid} {' '.join(words)[:100]}")
        return names

    yield found
    assert _soon(lambda: not found(), 60), found()
    # By the keeper, the last of all, which has nothing of the learner's about it.
    assert _soon(lambda: not list(temporary.glob(ray_folder.PREFIX + "*")), 60)


def _name(process: psutil.Process) -> str:
    """Ray's processes come and go."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _soon(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


# --- real clusters ---


def test_plain_ray_runs_unchanged(
    start_api: StartApi, launch: Launch, ray_python: str, clean: Any, tmp_path: Path
) -> None:
    """Ray Train and Horovod on Ray: tests/e2e/test_ray_launcher.py."""
    command = f"python {PROGRAMS}/plain.py"
    api = start_api(
        command, learners=2, launcher="ray", cpus=1, memory=2 * GIB, env={"GREETING": "hi"}, heartbeat_seconds=1
    )
    # The environment of an agent that runs in an actor of another Ray cluster.
    outer = {
        "RAY_ADDRESS": "192.0.2.99:6379",
        "RAY_JOB_ID": "01000000",
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN": "the platform's",
        "RAY_AUTH_TOKEN_PATH": "/nowhere",
    }
    agents = [launch(api, rank, python=ray_python, **outer) for rank in range(2)]
    codes = [agent.wait(SECONDS) for agent in agents]
    lines = api.learners[0].lines
    shown = "\n".join(lines + api.learners[1].lines)
    assert codes == [0, 0], shown
    [places] = [json.loads(line.removeprefix("places ")) for line in lines if line.startswith("places ")]
    assert [place["LEARNER_ID"] for place in places] == ["1", "2"]
    # Each learner has downloaded the data for itself.
    assert [place["DATA_DIR"] for place in places] == [str(tmp_path / f"learner-{n}" / "data") for n in (1, 2)]
    assert [(place["OMP_NUM_THREADS"], place["GREETING"]) for place in places] == [("1", "hi")] * 2
    assert "cpus 2.0 nodes ['learner-1', 'learner-2']" in lines
    assert "foreign None None token" in lines
    for visitor in ("stranger", "impostor"):
        assert f"{visitor} is refused, by the dashboard too" in lines, shown
    assert "friend comes in, to the dashboard too" in lines, shown
    assert api.learners[1].lines == []
    assert not [line for line in lines if line.startswith("\x1b")], "colours in a job's log"
    assert api.problems == []


def test_sigterm_comes_to_the_script_while_the_whole_cluster_is_still_there(
    start_api: StartApi, launch: Launch, ray_python: str, clean: Any
) -> None:
    api = start_api(
        f"python {PROGRAMS}/save.py", learners=2, launcher="ray", cpus=1, memory=2 * GIB, heartbeat_seconds=0.5
    )
    agents = [launch(api, rank, python=ray_python) for rank in range(2)]
    api.wait_for(lambda: "working" in api.learners[0].lines, SECONDS)
    api.stop = {"stop": True, "grace_seconds": 100}
    assert [agent.wait(SECONDS) for agent in agents] == [143, 143]
    assert "saved by 1 2" in api.learners[0].lines, api.learners[0].lines
    assert [api.learners[rank].exit_reason for rank in range(2)] == ["stopped", "stopped"]


def test_a_script_that_crashes_leaves_nothing(start_api: StartApi, launch: Launch, ray_python: str, clean: Any) -> None:
    api = start_api(f"python {PROGRAMS}/busy.py 3", launcher="ray", cpus=1, memory=GIB, heartbeat_seconds=1)
    agent = launch(api, python=ray_python)
    assert agent.wait(SECONDS) == 3
    assert api.learners[0].exit_reason == "exit code 3"
    assert "working" in api.learners[0].lines


def test_kill_9_of_an_agent_and_of_rays_own_processes(
    start_api: StartApi, launch: Launch, ray_python: str, clean: Any, tmp_path: Path
) -> None:
    api = start_api(
        f"python {PROGRAMS}/busy.py", learners=2, launcher="ray", cpus=1, memory=2 * GIB, heartbeat_seconds=1
    )
    first, second = (launch(api, rank, python=ray_python) for rank in range(2))
    api.wait_for(lambda: "working" in api.learners[0].lines, SECONDS)

    second.kill()
    second.process.wait()
    assert _soon(lambda: not clean("/learner-2/"), 60), clean("/learner-2/")

    [raylet] = [process for process in first.descendants if _name(process) == "raylet"]
    raylet.kill()
    assert first.wait(SECONDS) == 1
    reason = api.learners[0].exit_reason
    assert "Ray has ended on learner 1: raylet [exit code=-9]" in reason, reason


def test_an_image_without_ray(start_api: StartApi, launch: Launch) -> None:
    """The tests' own Python has none."""
    api = start_api("echo x", launcher="ray")
    assert launch(api).wait() == 1
    assert "this learner's image has no Ray, which launcher 'ray' needs" in api.learners[0].exit_reason
    assert "x" not in api.learners[0].lines
