"""Training in small, exact to the last bit: gradient descent with momentum on data from a fixed seed.

usage: descent.py STEPS SECONDS_A_STEP STEPS_BETWEEN_SAVES

Each learner has its share of the data, and they add their gradients up in lockstep (through files in $EXCHANGE_DIR, as
this needs nothing installed). Each keeps its own shard of the model and of the optimizer's state, so a checkpoint is
three files of each learner, which were never written at once: a mixture of two of them is found and ends the program.
With $HOLD, the last step is not done before that file is there.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

SIZE, ROWS, RATE, MOMENTUM = 6, 24, 0.02, 0.9
steps, pause, between = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
rank, learners = int(os.environ["LEARNER_ID"]) - 1, int(os.environ["NUM_LEARNERS"])
folder = Path(os.environ["CHECKPOINT_DIR"])
exchange = Path(os.environ["EXCHANGE_DIR"], os.environ["WEFT_ATTEMPT"])
exchange.mkdir(parents=True, exist_ok=True)

source = random.Random(7)
truth = [source.gauss(0, 1) for _ in range(SIZE)]
rows = [[source.gauss(0, 1) for _ in range(SIZE)] for _ in range(ROWS)]
data = [(row, sum(a * b for a, b in zip(row, truth, strict=True)) + source.gauss(0, 0.1)) for row in rows]


def write(path: Path, value: object) -> None:
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(json.dumps(value))  # floats come back as they were
    draft.replace(path)


def all_gather(step: int, value: list[float]) -> list[list[float]]:
    write(exchange / f"{step}-{rank}", value)
    gathered = []
    for other in range(learners):
        path = exchange / f"{step}-{other}"
        while not path.exists():
            time.sleep(0.005)
        gathered.append(json.loads(path.read_text()))
    return gathered


def save(step: int, weights: list[float], speed: list[float]) -> None:
    for name, values in (("model", weights), ("optimizer", speed)):
        write(folder / f"{name}-{rank}", {"step": step, "values": values[rank::learners]})
        time.sleep(pause / 10)
    write(folder / f"meta-{rank}", {"step": step, "learners": learners})


def load() -> tuple[int, list[float], list[float]]:
    if not any(folder.iterdir()):
        return 0, [0.0] * SIZE, [0.0] * SIZE
    shards = {path.name: json.loads(path.read_text()) for path in sorted(folder.iterdir()) if path.suffix != ".tmp"}
    wanted = {f"{name}-{learner}" for name in ("model", "optimizer", "meta") for learner in range(learners)}
    found = {name: shard["step"] for name, shard in shards.items()}
    if shards.keys() != wanted or len(set(found.values())) != 1:
        sys.exit(f"torn checkpoint: {found}")
    state = []
    for name in ("model", "optimizer"):
        values = [0.0] * SIZE
        for learner in range(learners):
            values[learner::learners] = shards[f"{name}-{learner}"]["values"]
        state.append(values)
    return found["meta-0"], state[0], state[1]


step, weights, speed = load()
print(f"starts at step {step}", flush=True)
while step < steps:
    while step == steps - 1 and "HOLD" in os.environ and not Path(os.environ["HOLD"]).exists():
        time.sleep(0.05)
    gradient = [0.0] * (SIZE + 1)  # and the loss
    for row, y in data[rank::learners]:
        error = sum(a * b for a, b in zip(row, weights, strict=True)) - y
        gradient = [g + error * x / ROWS for g, x in zip(gradient, [*row, error], strict=True)]
    total = [sum(parts) for parts in zip(*all_gather(step, gradient), strict=True)]
    speed = [MOMENTUM * v - RATE * g for v, g in zip(speed, total, strict=False)]
    weights = [w + v for w, v in zip(weights, speed, strict=True)]
    step += 1
    if step % 10 == 0:
        print(f"step {step}", flush=True)
    time.sleep(pause)
    if step % between == 0 and step < steps:
        save(step, weights, speed)
print(f"final step {step} loss {total[-1].hex()}", flush=True)
