"""A training that saves all of its state, or forgets a part of it: ``python forgetful.py BUG STEPS SECONDS [KILLS]``.

Linear regression with momentum and dropout, on batches in an order that changes with each epoch. Each learner trains by
itself. With $HOLD, a folder, and KILLS as the last argument, the first KILLS attempts end only by a kill: each saves
again and again at a step of its own, until there is a file with the job's id in the folder.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROWS, SIZE, BATCH, EVERY = 64, 8, 8, 5


def train(
    folder: Path,
    report: Callable[..., None],
    bug: str = "",
    *,
    rank: int = 0,
    steps: int = 60,
    pause: Callable[[str], None] = lambda where: None,
    held: Callable[[int], bool] = lambda step: False,
) -> dict[str, Any]:
    """The trained weights. ``pause`` is called after each ``step``, and ``in a save`` of two files."""
    source = np.random.default_rng([1, rank])
    rows = source.normal(size=(ROWS, SIZE))
    goals = rows @ source.normal(size=SIZE) + source.normal(scale=0.1, size=ROWS)
    chance = np.random.default_rng([2, rank])
    weights, speed = np.zeros(SIZE), np.zeros(SIZE)
    first, position, base = 1, 0, 0
    path = folder / f"state-{rank}.npz"
    if path.exists() and not (bug == "rank 0 only" and rank) and bug != "not resumed":
        with np.load(path) as state:
            weights, first, position = state["weights"], int(state["next"]), int(state["position"])
            if bug != "optimizer":
                speed = state["speed"]
            if bug != "random numbers":
                numbers = chance.bit_generator.state
                stored = [int.from_bytes(state["chance"][at : at + 16].tobytes(), "little") for at in (0, 16)]
                chance.bit_generator.state = {**numbers, "state": dict(zip(("state", "inc"), stored, strict=True))}
        if bug == "torn save":
            weights = np.load(folder / f"weights-{rank}.npz")["weights"]
        if bug == "data repeated":
            position = position // ROWS * ROWS
        if bug == "scheduler":
            base = first - 1
    for step in range(first, steps + 1):
        order = np.random.default_rng([3, rank, position // ROWS]).permutation(ROWS)
        batch = order[position % ROWS :][:BATCH]
        position += BATCH
        rate = 0.05 * (1 - (step - base) / (2 * steps))
        kept = rows[batch] * (chance.random((len(batch), SIZE)) > 0.1)
        error = kept @ weights - goals[batch]
        speed = 0.9 * speed - rate * kept.T @ error / len(batch)
        weights = weights + speed
        report(loss=float(error @ error), rate=rate, step=step, group="train")
        report(batch=zlib.crc32(batch.tobytes()), step=step, group="data")
        while step % EVERY == 0 and step < steps:
            numbers = chance.bit_generator.state["state"]
            words = b"".join(numbers[key].to_bytes(16, "little") for key in ("state", "inc"))
            state = {
                "weights": weights,
                "speed": speed,
                "next": step if bug == "counter" else step + 1,
                "position": position,
                "chance": np.frombuffer(words, "u1"),
            }
            if bug == "torn save":
                write(folder / f"weights-{rank}.npz", {"weights": weights})
                pause("in a save")
            write(path, state)
            if not held(step):
                break
        pause("step")
    return {"weights": weights}


def write(path: Path, state: dict[str, Any]) -> None:
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        np.savez(file, **state)
    draft.replace(path)


def main() -> None:
    from weft_trainer import log_metrics

    bug, steps, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    kills = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    rank, attempt = int(os.environ["LEARNER_ID"]) - 1, int(os.environ["WEFT_ATTEMPT"])
    between = {"step": seconds, "in a save": 30 * seconds}

    def held(step: int) -> bool:
        if attempt > kills or step != attempt * EVERY or Path(os.environ["HOLD"], os.environ["TRAINING_ID"]).exists():
            return False
        time.sleep(1)
        return True

    trained = train(
        Path(os.environ["CHECKPOINT_DIR"]),
        log_metrics,
        bug,
        rank=rank,
        steps=steps,
        pause=lambda where: time.sleep(between[where]),
        held=held,
    )
    np.savez(Path(os.environ["RESULT_DIR"]) / f"model-{rank}.npz", **trained)


if __name__ == "__main__":
    main()
