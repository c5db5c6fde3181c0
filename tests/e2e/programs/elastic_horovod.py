"""A training loop of Horovod in small, with its elastic state: what is lost with a learner is what came since a commit.

usage: elastic_horovod.py STEPS SECONDS_BETWEEN

Each step adds 1 in all processes together, so that the sum at the end tells of every step that was lost or done twice.
"""

import os
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch

steps, pause = int(sys.argv[1]), float(sys.argv[2])
checkpoint = Path(os.environ["CHECKPOINT_DIR"], "state.pt")


@hvd.elastic.run
def train(state) -> None:
    print(f"process {os.getpid()}: rank {hvd.rank()} of {hvd.size()} at step {state.step}", flush=True)
    while state.step < steps:
        time.sleep(pause)
        state.sum += hvd.allreduce(torch.ones(1), name="share").item()  # the average
        state.step += 1
        if hvd.rank() == 0:
            print(f"step {state.step} with {hvd.size()}", flush=True)
        if state.step % 5 == 0:
            if hvd.rank() == 0:
                part = checkpoint.with_suffix(".part")
                torch.save({"step": state.step, "sum": state.sum}, part)
                part.replace(checkpoint)
            state.commit()


hvd.init()
begin = torch.load(checkpoint) if checkpoint.exists() else {"step": 0, "sum": 0.0}
state = hvd.elastic.TorchState(**begin)
train(state)
if hvd.rank() == 0:
    Path(os.environ["RESULT_DIR"], "model.txt").write_text(f"{state.step} steps, sum {state.sum:.0f}\n")
