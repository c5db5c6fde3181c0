"""Weights & Biases' own quickstart: it would ask for a key, if it were not offline."""

import wandb

with wandb.init(project="digits", config={"lr": 0.1}) as run:
    for step in range(3):
        run.log({"loss": 1 / (step + 1)})
