"""A Slurm batch script, submitted by ``weft sbatch``."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.stack import Stack, lines

PROGRAMS = Path(__file__).parent / "programs"


def test_a_batch_script_runs_on_two_learners(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_bytes((PROGRAMS / "slurm.sh").read_bytes())
    options = [f"--chdir={tmp_path}", "--set", "cpus=0.5"]
    done = stack.weft("sbatch", *options, str(tmp_path / "train.sh"), "--lr", "0.1")
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
    second = stack.client.jobs.download_file(job.id, "second.txt", tmp_path / "second.txt")
    assert second.read_text() == "2\n"
