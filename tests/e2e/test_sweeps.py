"""Sweeps on the whole stack: real trials on the local engine, with API and workers killed in between."""

from __future__ import annotations

from typing import Any

from tests.e2e.stack import Stack, eventually, manifest

# It reads its parameters in all three ways, and its value is the same each time that it runs.
_PROGRAM = """
import json, os
from weft_trainer import log_metrics
told = json.load(open(os.environ["WEFT_PARAMETERS_FILE"]))
assert float(os.environ["WEFT_SWEEP_X"]) == float(os.environ["X"]) == told["x"] == ${sweep.x}
assert os.environ["KIND"] == told["kind"]
log_metrics(score=-abs(told["x"] - 0.5), step=1)
"""


def sweep(**changes: Any) -> dict[str, Any]:
    command = f"cat > train.py <<'END'\n{_PROGRAM}\nEND\nexec python train.py"
    search = {
        "parameters": {"x": {"uniform": [0, 1]}, "kind": {"values": ["a", "b"], "set": "env.KIND"}},
        "metric": "score",
        "search": "random",
        "trials": 4,
        "parallel": 2,
        **changes,
    }
    return manifest(command, sweep=search, env={"X": "${sweep.x}"})


# It continues from its checkpoint, or from that of another trial, and fails if it has none on the second rung.
_LONGER = """
import os
from pathlib import Path
from weft_trainer import log_metrics
state = Path(os.environ["CHECKPOINT_DIR"]) / "epochs"
ran = len(state.read_text()) if state.exists() else 0
assert ran >= ${sweep.epochs} - 1, ran
for epoch in range(ran + 1, ${sweep.epochs} + 1):
    log_metrics(score=epoch / 1000 - abs(${sweep.x} - 0.5), step=epoch)
    state.write_text("x" * epoch)
"""


def test_sweeps_go_on_whoever_is_killed(stack: Stack) -> None:
    """A search of each kind at the same time: independent trials, and good trials that go on from their checkpoints."""
    client = stack.client
    calm = client.sweep(sweep())
    assert client.sweeps.wait(calm.id, 400).state == "COMPLETED"

    search = {
        "parameters": {"x": {"uniform": [0, 1]}},
        "metric": "score",
        "search": "asha",
        "trials": 4,
        "parallel": 2,
        "rungs": {"parameter": "epochs", "max": 2, "reduction": 2, "sync": True},
    }
    rungs = {"parameter": "epochs", "max": 2, "every": 1}
    population = {**search, "search": "pbt", "trials": 8, "population": 4, "rungs": rungs}
    command = f"cat > train.py <<'END'\n{_LONGER}\nEND\nexec python train.py"
    made = client.sweep(manifest(command, sweep=search))
    bred = client.sweep(manifest(command, sweep=population))
    disturbed = client.sweep(sweep())
    eventually(lambda: client.sweeps.get(disturbed.id).told >= 1, "a trial")
    stack.kill_and_await("worker", "api")
    eventually(lambda: any(trial.parameters["epochs"] == 2 for trial in client.sweeps.trials(made.id)), "a rung")
    eventually(lambda: client.sweeps.get(disturbed.id).told >= 3, "trials after the kill")
    stack.kill_and_await("worker")

    check_independent(stack, calm.id, disturbed.id)
    check_rungs(stack, made.id)
    check_population(stack, bred.id)


def check_independent(stack: Stack, calm: str, disturbed: str) -> None:
    """Both have the same trials."""
    client = stack.client
    ended = client.sweeps.wait(disturbed, 400)
    assert (ended.state, ended.reason) == ("COMPLETED", "all trials have ended")
    traces = [
        [(trial.number, trial.parameters, trial.value, trial.state) for trial in client.sweeps.trials(sweep)]
        for sweep in (calm, disturbed)
    ]
    assert traces[0] == traces[1]
    assert [trial[2] for trial in traces[0]] == [-abs(float(trial[1]["x"]) - 0.5) for trial in traces[0]]
    jobs = [job.id for job in client.jobs.list(label=f"sweep={disturbed}")]
    assert sorted(jobs) == sorted(trial.job or "" for trial in client.sweeps.trials(disturbed))
    assert ended.best is not None
    shown = stack.weft("sweep", "best", disturbed).stdout
    assert ended.best.job is not None
    assert ended.best.job in shown


def check_rungs(stack: Stack, made: str) -> None:
    """The better half has gone on, and none has failed."""
    ended = stack.client.sweeps.wait(made, 400)
    trials = list(stack.client.sweeps.trials(made))
    assert (ended.state, [trial.reason for trial in trials]) == ("COMPLETED", [""] * 4)
    best = sorted(trials, key=lambda trial: abs(float(trial.parameters["x"]) - 0.5))
    assert [trial.parameters["epochs"] for trial in best] == [2, 2, 1, 1]
    assert ended.best is not None
    assert (ended.best.number, ended.best.value) == (
        best[0].number,
        2 / 1000 - abs(float(best[0].parameters["x"]) - 0.5),
    )


def check_population(stack: Stack, bred: str) -> None:
    """The worst member of four has given way to the best, and the others go on from their own checkpoints."""
    client = stack.client
    assert client.sweeps.wait(bred, 400).state == "COMPLETED"
    members = list(client.sweeps.trials(bred))
    order = sorted(members[:4], key=lambda trial: abs(float(trial.parameters["x"]) - 0.5))
    worst = order[-1].number
    assert [trial.parent for trial in members[4:]] == [n if n != worst else order[0].number for n in range(4)]
    for trial in members[4:]:
        began = client.jobs.get(trial.job or "").attempts[-1].checkpoint or {}
        assert began["job"] == members[trial.parent or 0].job, "the stored checkpoint itself"
