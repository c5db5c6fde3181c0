"""Metrics from every source of a program, to the output that its user reads."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.stack import Stack, eventually, lines, manifest, series

EXTRACTOR = {
    "type": "regex_extractor",
    "groups": {
        "log": {
            "regex": "Iteration %{INT:step}, accuracy = %{FLOAT:accuracy}",
            "scalars": {"accuracy": {"type": "FLOAT", "value": "$accuracy"}},
            "etimes": {"iteration": {"type": "INT", "value": "$step"}},
        }
    },
}


def test_every_source_of_metrics(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wanted = manifest("python measure.py", learners=2, evaluation_metrics=EXTRACTOR, env={"HOLD": str(go)})
    job = stack.train(wanted)
    eventually(lambda: len(series(stack, job)) == 6, "all metrics of both learners, while they run")
    eventually(
        lambda: {learner for name, learner in series(stack, job, "system") if name == "system/memory_bytes"} == {1, 2},
        "system metrics of both learners",
    )
    go.touch()
    job.wait(timeout=900)
    found = series(stack, job)
    assert found.keys() == {
        (name, learner) for name in ("own/loss", "train/loss", "log/accuracy") for learner in (1, 2)
    }
    for learner in (1, 2):
        own, train, log = (found[name, learner] for name in ("own/loss", "train/loss", "log/accuracy"))
        assert (own["points"], own["last"], own["last_step"], own["max"]) == (5, 0.2, 4, 1)
        assert (train["points"], train["last"], train["last_step"]) == (3, 0.33333334, 2)
        assert (log["points"], log["last"], log["last_step"]) == (5, 0.4, 4)
    assert not [line for line in lines(job) if line.startswith("weft:")]

    file = stack.train(manifest("python measure.py", evaluation_metrics={"type": "optivist"})).wait(timeout=900)
    found = series(stack, file)
    assert found.keys() == {("own/loss", 1), ("train/loss", 1), ("test/f1", 1)}
    assert (found["test/f1", 1]["last"], found["test/f1", 1]["last_step"]) == (0.5, 3)
