"""A training loop of Horovod in small, with its elastic state: a lost learner loses only the steps since a commit.

usage: elastic_horovod.py STEPS SECONDS_BETWEEN UNTIL BLIND

It trains for STEPS steps at least, and until all processes find the file UNTIL. Once one has found the file BLIND, they
commit nothing more, and so see no change of their gang.
Each step adds 1 in all processes together, so that the sum at the end tells of every step that was lost or done twice.
"""

import os
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch

steps, pause, until, blind = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
checkpoint = Path(os.environ["CHECKPOINT_DIR"], "state.pt")


@hvd.elastic.run
def train(state) -> None:
    print(f"process {os.getpid()}: rank {hvd.rank()} of {hvd.size()} at step {state.step}", flush=True)
    told = 0.0
    while state.step < steps or told < 1:
        time.sleep(pause)
        mine = torch.tensor([1, float(until.exists()), float(blind.exists())])
        share, told, blinded = hvd.allreduce(mine, name="share").tolist()  # the averages
        state.sum += share
        state.step += 1
        if hvd.rank() == 0:
            print(f"step {state.step} with {hvd.size()}", flush=True)
        if state.step % 5 == 0 and not blinded:
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
