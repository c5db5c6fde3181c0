"""Learners are killed at random moments, and the job still ends with exactly the loss of an undisturbed job."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from tests.e2e.stack import PROGRAMS, Stack, alive, eventually, follow_to, lines, manifest

import weft
from weft_api.checkpoints.service import Generation

STEPS, PAUSE, BETWEEN = 240, 0.05, 60  # a save every three seconds
SEED = int(os.environ.get("WEFT_TEST_SEED", "20261121"))


def undisturbed(learners: int, folder: Path) -> str:
    """What the program says at its end, run without Weft."""
    running = []
    for learner in range(1, learners + 1):
        checkpoints = folder / f"undisturbed-{learners}-{learner}"
        checkpoints.mkdir(parents=True)
        environment = {
            **os.environ,
            "LEARNER_ID": str(learner),
            "NUM_LEARNERS": str(learners),
            "WEFT_ATTEMPT": "0",
            "CHECKPOINT_DIR": str(checkpoints),
            "EXCHANGE_DIR": str(folder / f"exchange-{learners}"),
        }
        command = [sys.executable, str(PROGRAMS / "descent.py"), str(STEPS), "0", str(BETWEEN)]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    said = [program.communicate(timeout=300)[0].splitlines()[-1] for program in running]
    assert all(program.returncode == 0 for program in running)
    assert len(set(said)) == 1
    return said[0]


def start(stack: Stack, folder: Path, name: str, learners: int) -> weft.Job:
    return stack.train(
        manifest(
            f"exec python descent.py {STEPS} {PAUSE} {BETWEEN}",
            name=name,
            learners=learners,
            cpus=0.2,
            retries=5,
            checkpoint={"every": "1s", "keep": 10},
            env={"EXCHANGE_DIR": str(folder / name), "HOLD": str(folder / "go")},
        )
    )


def processes(stack: Stack, job: weft.Job) -> dict[str, list[psutil.Process]]:
    """The agents of a job's learners, and their programs."""
    found: dict[str, list[psutil.Process]] = {"agent": [], "program": []}
    for process in stack.learners():
        try:
            words, folder = process.cmdline(), process.cwd()
        except psutil.Error:
            continue
        if job.id not in folder:
            continue
        if "descent.py" in words:
            found["program"].append(process)
        elif words[-2:] == ["-m", "weft_trainer"]:
            found["agent"].append(process)
    # Below each agent is its watchdog, by the same name.
    found["agent"] = alive(found["agent"], lambda process: process.parent() not in found["agent"])
    return found


def stored_of_one_moment(stack: Stack, job: weft.Job) -> bool:
    """Whether each learner has stored the state that it had at a moment. On a machine that stands still for seconds,
    an agent may miss the state that the other learner's agent has stored; then there is nothing to go back to yet."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            stack.client.data.get(f"default:results/_checkpoints/{job.id}", folder)
        except weft.WeftError:  # there is none yet, or one gave way to newer ones
            return False
        rows: dict[str, list[Generation]] = {}
        for path in Path(folder).rglob("generations/*.json"):
            learner = str(path.parents[1])
            rows.setdefault(learner, []).append(Generation(path.stem, "", json.loads(path.read_text())))
    if len(rows) < job.learners:
        return False
    first, *others = rows.values()
    return any(all(any(mine.overlaps(its) for its in other) for other in others) for mine in first)


def await_steps(job: weft.Job, n: int) -> None:
    """Wait until each learner has done some steps in this attempt."""
    for learner in range(1, job.learners + 1):
        follow_to(job, "^step", learner=learner, attempt=n)


def disturb_once(stack: Stack, job: weft.Job, what: str, chance: random.Random) -> None:
    n = job.refresh().attempt or 1
    await_steps(job, n)
    eventually(lambda: stored_of_one_moment(stack, job), f"a checkpoint of {job.name}")
    time.sleep(chance.uniform(0, 2.5))
    if what == "halt":
        job.halt(grace_seconds=10)
        eventually(lambda: job.refresh().state == "HALTED", f"{job.name} halted")
        job.resume()
    else:
        victims = processes(stack, job)[what]
        assert victims, f"{job.name} has ended though nobody let it: {lines(job)[-3:]}"
        chance.choice(victims).kill()
    eventually(lambda: job.refresh().attempt > n, f"another attempt of {job.name}")


def disturb(stack: Stack, job: weft.Job, how: list[str], chance: random.Random) -> None:
    for what in how:
        disturb_once(stack, job, what, chance)
    await_steps(job, job.refresh().attempt)


def test_the_end_is_the_same_whatever_is_killed_and_when(stack: Stack, tmp_path: Path) -> None:
    wanted = {learners: undisturbed(learners, tmp_path) for learners in (1, 2)}
    plans = {
        "one": (1, ["halt", "program"]),
        "two-killed": (2, ["program", "agent"]),
        "two-halted": (2, ["halt", "agent"]),
    }
    jobs = {name: start(stack, tmp_path, name, learners) for name, (learners, _) in plans.items()}
    with ThreadPoolExecutor(len(plans)) as pool:
        disturbing = [
            pool.submit(disturb, stack, jobs[name], how, random.Random(f"{SEED} {name}"))
            for name, (_, how) in plans.items()
        ]
        for future in disturbing:
            future.result()
    # And all of them are preempted: the platform goes down in an orderly way, and comes back.
    stack.down()
    eventually(lambda: not stack.processes(), f"left behind: {stack.processes()}")
    (tmp_path / "go").touch()
    stack.up()
    for name, (learners, how) in plans.items():
        job = stack.client.jobs.get(jobs[name].id).wait(timeout=900, check=False)
        shown = [f"{line.attempt}.{line.learner} {line.text}" for line in job.logs()]
        assert job.state == "COMPLETED", (name, job.reason, shown[-20:])
        outcomes = [attempt.outcome for attempt in job.attempts]
        assert len(outcomes) >= len(how) + 2
        assert outcomes[-2:] == ["INTERRUPTED", "SUCCEEDED"]
        failed = outcomes.count("FAILED") + outcomes.count("LOST")
        assert job.failures == failed, "what the platform's end interrupts is no failure"
        for learner in range(1, learners + 1):
            assert lines(job, learner)[-1] == wanted[learners], (name, SEED)
        begun = [line for line in lines(job, 1) if line.startswith("starts at step")]
        assert all(line != "starts at step 0" for line in begun[1:]), (name, begun)
        assert all(attempt.checkpoint for attempt in job.attempts[1:]), "each says from which checkpoint it started"
