"""An ordinary script: it saves into the folder in which it is started, and has no code for Weft."""

import os
import shutil
from pathlib import Path

with open("model.pt", "w") as file:
    file.write("m\n")
os.makedirs("out")
with open("out/x", "w") as file:
    file.write("x\n")
os.makedirs("runs/Nov23_12-00-00_host")
shutil.copy("events.out.tfevents.torch", "runs/Nov23_12-00-00_host")
if os.environ["WANDB_MODE"] == "offline":
    run = Path("wandb/offline-run-1/run-1.wandb")
    run.parent.mkdir(parents=True)
    run.write_text("w\n")
