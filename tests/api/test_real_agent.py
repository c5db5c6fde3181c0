"""Real agents at the real API: checkpoints from one job to another, and heartbeats with their answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func
from tests.api.conftest import Api, Attempted, Person

from weft_core.store.models import Attempt, Learner

pytestmark = pytest.mark.slow

RUNTIME = Path(__file__).parents[2] / "trainer_images" / "runtime"
MANIFEST = "name: hello\nframework: {name: python, command: %r}\ncheckpoint: {every: 1s}\n"
DEADLOCK = "python -c 'def waits_for_nobody(): input()\nimport os\nos.dup2(os.pipe()[0], 0)\nwaits_for_nobody()'"


def start(api: Api, attempt: Attempted, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(RUNTIME),
        "WEFT_API_URL": api.url,
        "WEFT_ATTEMPT_TOKEN": attempt.token,
        "WEFT_RANK": "0",
        "WEFT_NUM_LEARNERS": "1",
        "WEFT_WORKDIR": str(folder),
        "WEFT_CACHE_DIR": str(folder / "cache"),
    }
    return subprocess.Popen([sys.executable, "-m", "weft_trainer"], env=environment)


def run(api: Api, job: dict[str, Any], folder: Path) -> Attempted:
    attempt = api.attempt(job["id"])
    assert start(api, attempt, folder).wait(600) == 0
    return attempt


def log(person: Person, job: dict[str, Any]) -> list[str]:
    lines = person.http.get(f"/api/v1/jobs/{job['id']}/logs").json()["lines"]
    return [line["text"] for line in lines]


def eventually(condition: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_checkpoint_goes_from_job_to_job(api: Api, ann: Person, tmp_path: Path) -> None:
    command = 'cd $CHECKPOINT_DIR; cat state 2>/dev/null; echo "of $TRAINING_ID" > state.tmp; mv state.tmp state'
    first = ann.submit(MANIFEST % command)
    run(api, first, tmp_path / "first")
    [kept] = ann.http.get(f"/api/v1/jobs/{first['id']}/checkpoints").json()["checkpoints"]
    assert (kept["job"], kept["attempt"], kept["learner"], kept["files"]) == (first["id"], 1, 1, 1)
    second = ann.http.post(f"/api/v1/jobs/{first['id']}/rerun", json={"from_checkpoint": True}).json()
    assert ann.http.delete(f"/api/v1/jobs/{first['id']}").status_code == 202
    attempt = run(api, second, tmp_path / "second")
    assert log(ann, second) == [f"of {first['id']}"]
    shown = ann.http.get(f"/api/v1/jobs/{second['id']}").json()["attempts"][0]["checkpoint"]
    assert (shown["job"], shown["generation"], shown["files"]) == (first["id"], kept["generation"], 1)
    messages = [event["message"] for event in ann.http.get(f"/api/v1/jobs/{second['id']}/events").json()["events"]]
    assert any(message.endswith(f"by attempt 1 of {first['id']}") for message in messages), messages
    api.end_attempt(attempt)
    run(api, second, tmp_path / "third")  # its own by now
    assert log(ann, second)[-1] == f"of {second['id']}"


def test_an_idle_learner_says_so_and_shows_its_stack(api: Api, ann: Person, tmp_path: Path) -> None:
    job = ann.submit(MANIFEST % DEADLOCK)
    attempt = api.attempt(job["id"])
    agent = start(api, attempt, tmp_path / "learner")

    def learner() -> Learner:
        with api.context.database.transaction() as session:
            return session.get_one(Learner, (attempt.id, 0))

    eventually(lambda: learner().idle_since is not None)
    assert learner().wrote is False
    api.set_attempt(attempt, stalled_at=func.now())
    eventually(lambda: any("waits_for_nobody (" in line for line in log(ann, job)))
    with api.context.database.transaction() as session:
        session.get_one(Attempt, attempt.id).stop_requested_at = func.now()
    assert agent.wait(600) == 143
