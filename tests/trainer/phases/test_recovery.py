"""Agents and programs are killed at random moments, again and again, until the program ends: its loss is exactly that
of an undisturbed run. A small version of tests/e2e/test_recovery.py, which does this with the whole platform."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from tests.trainer.agents import Launch, words
from tests.trainer.api_double import ApiDouble
from tests.trainer.conftest import StartApi

PROGRAM = Path(__file__).parents[2] / "e2e/programs/descent.py"
STEPS, PAUSE, BETWEEN = 600, 0.04, 25  # a save every second, and no end before somebody disturbs it
SEED = int(os.environ.get("WEFT_TEST_SEED", "20261121"))


def undisturbed(learners: int, folder: Path) -> str:
    """What the program says at its end, run without an agent."""
    running = []
    for learner in range(1, learners + 1):
        checkpoints = folder / f"undisturbed-{learner}"
        checkpoints.mkdir()
        variables = {"LEARNER_ID": str(learner), "NUM_LEARNERS": str(learners), "WEFT_ATTEMPT": "0"}
        variables |= {"CHECKPOINT_DIR": str(checkpoints), "EXCHANGE_DIR": str(folder / "undisturbed")}
        command = [sys.executable, str(PROGRAM), str(STEPS), "0", str(BETWEEN)]
        running.append(subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True))
    [said] = {process.communicate(timeout=300)[0].splitlines()[-1] for process in running}
    return said


def began(api: ApiDouble, learners: int) -> bool:
    return all(api.learners[rank].lines for rank in range(learners))


def stored(api: ApiDouble, learners: int) -> bool:
    folders = {key.rpartition("generations/")[0] for key in list(api.objects) if "generations/" in key}
    return len(folders) == learners


@pytest.mark.parametrize("learners", [1, 2])
def test_the_end_is_the_same(start_api: StartApi, launch: Launch, tmp_path: Path, learners: int) -> None:
    wanted = undisturbed(learners, tmp_path)
    chance = random.Random(f"{SEED} {learners}")
    objects: dict[str, bytes] = {}
    begun = []
    ends = ["program", "agent", "stop", "nothing"]
    for number, end in enumerate(ends, 1):
        api = start_api(
            f"exec python {PROGRAM} {STEPS} {PAUSE if end != 'nothing' else 0} {BETWEEN}",
            learners,
            attempt=number,
            env={"EXCHANGE_DIR": str(tmp_path / "exchange")},
            checkpoint={"every_seconds": 0.2, "keep": 20},
            grace_seconds=3,
        )
        api.objects = objects
        agents = [launch(api, rank, folder=f"{number}-{rank}") for rank in range(learners)]
        if end != "nothing":
            api.wait_for(partial(began, api, learners))
            api.wait_for(partial(stored, api, learners))
            time.sleep(chance.uniform(0.1, 0.5))
            victim = chance.choice(agents)
            if end == "program":
                [program] = [process for process in victim.descendants if str(PROGRAM) in words(process)]
                program.kill()
                victim.wait()
            elif end == "agent":
                victim.kill()
            # The rest of the gang gets a stop, as all of it does at a halt.
            for agent in agents:
                if agent.process.poll() is None:
                    agent.terminate()
        for agent in agents:
            agent.wait()
        lines = [api.learners[rank].lines for rank in range(learners)]
        assert not any("torn" in line for said in lines for line in said), (SEED, lines)
        begun.append(lines[0][0])
        if any(line.startswith("final") for line in lines[0]):
            break
    assert [said[-1] for said in lines] == [wanted] * learners, (SEED, begun)
    assert len(begun) > 1, "it ended before anybody disturbed it"
    assert all(line != "starts at step 0" for line in begun[1:]), begun
