"""`weft backup` while a job runs, and `weft restore` into another home, where the job goes on."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.e2e.conftest import SETTINGS, engines
from tests.e2e.stack import Stack, eventually, lines, manifest

STEPS = 6


def test_jobs_go_on_in_a_restored_installation(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    go = tmp_path_factory.getbasetemp() / "backup-go"
    running = stack.train(
        manifest(f"exec python steps.py {STEPS} 0", cpus=0.1, checkpoint={"every": "1s"}, env={"HOLD": str(go)})
    )
    done = stack.train(manifest("python count.py 3 0", cpus=0.1)).wait(timeout=900)
    assert done.state == "COMPLETED", done.reason
    holds = manifest("exec python steps.py 1 0", gpus=1, cpus=0.1, env={"HOLD": str(go)}, data_stores=[])
    blocking = stack.train(holds)
    eventually(lambda: blocking.refresh().state == "PROCESSING", "a job that holds a GPU")
    waiting = stack.train(manifest("python count.py 1 0", gpus=7, cpus=0.1, data_stores=[]))
    eventually(lambda: f"step {STEPS - 2}" in lines(running), "all steps but the last")
    eventually(lambda: len(running.checkpoints()) > 0, "a checkpoint")

    file = tmp_path / "weft.backup"
    (passphrase := tmp_path / "passphrase").write_text("correct horse\n")
    secret = ("--passphrase-file", str(passphrase))
    made = stack.weft("backup", str(file), "--home", str(stack.home), *secret)
    assert made.stdout.strip() == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert running.refresh().state == "PROCESSING"

    other = Stack(tmp_path_factory.mktemp("restored") / "home", SETTINGS | engines(tmp_path_factory))
    said = other.weft("restore", str(file), "--home", str(other.home), *secret).stderr
    assert "start again, from their last checkpoints" in said
    assert other.weft("status", "--home", str(other.home), check=False).returncode == 3
    again = other.weft("restore", str(file), "--home", str(other.home), *secret, check=False)
    assert again.returncode == 1
    assert "is an installation already" in again.stderr

    try:
        other.up("--port", "0")
        go.touch()
        restored = other.client.jobs.get(running.id).wait(timeout=900)
        assert restored.state == "COMPLETED", restored.reason
        attempts = json.loads(other.weft("show", running.id, "--json").stdout)["attempts"]
        assert [(attempt["n"], attempt["outcome"]) for attempt in attempts] == [
            (1, "INTERRUPTED"),
            (2, "SUCCEEDED"),
        ]
        said_by_it = lines(restored)
        assert "attempt 2 starts at step 0" not in said_by_it, "it went on from its checkpoint"
        assert f"step {STEPS - 1}" in said_by_it
        model = restored.download_file("model.txt", tmp_path / "model.txt")
        assert model.read_text() == f"trained for {STEPS} steps\n"
        # The job that had ended before is unchanged, and the waiting jobs have their turn.
        assert lines(other.client.jobs.get(done.id)) == lines(done)
        kept = other.client.jobs.get(done.id).download_file("learner-1.txt", tmp_path / "kept.txt")
        assert kept.read_text() == "3\n"
        assert other.client.jobs.get(waiting.id).wait(timeout=900).state == "COMPLETED"
        assert other.client.jobs.get(blocking.id).wait(timeout=900).state == "COMPLETED"
    finally:
        other.down()
        for job in (running, waiting, blocking):
            job.wait(timeout=900)  # the old installation was not disturbed, either
    assert {job.refresh().state for job in (running, waiting, blocking)} == {"COMPLETED"}
