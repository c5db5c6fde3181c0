"""A batch script of Slurm's, submitted by ``weft sbatch``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.stack import Stack, lines

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.timeout(900)
def test_a_batch_script_runs_on_two_learners(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_bytes((PROGRAMS / "slurm.sh").read_bytes())
    server = {"WEFT_URL": stack.url, "WEFT_TOKEN": stack.token}
    done = subprocess.run(
        [Path(sys.executable).with_name("weft"), "sbatch", "train.sh", "--lr", "0.1"],
        cwd=tmp_path,
        env=os.environ | server,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Submitted batch job job-")
    job = stack.client.job(done.stdout.split()[-1]).wait(timeout=800, check=False)
    shown = "\n".join(f"[{line.learner}] {line.text}" for line in job.logs())
    assert job.state == "COMPLETED", f"{job.reason}\n{shown}"
    assert (job.name, job.learners) == ("on-two-nodes", 2)
    first = lines(job, 1)
    assert "nodes: 2, arguments: --lr 0.1" in first
    assert "the step ended with 1" in first
    for learner in (1, 2):
        tasks = [line.partition(", master ") for line in lines(job, learner) if ": task " in line]
        numbers = range((learner - 1) * 2, learner * 2)
        assert sorted(task for task, _, _ in tasks) == [f"{n}: task {n} of 4 on node {learner - 1}" for n in numbers]
        assert all(master for _, _, master in tasks), shown
    assert "learner-2/second.txt" in {file.path for file in job.files()}
