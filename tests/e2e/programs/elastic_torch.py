"""A training loop of torch.distributed in small, which goes on from its last checkpoint with whatever gang there is.

usage: elastic_torch.py STEPS SECONDS_BETWEEN [ROUND]

With ROUND it trains without end until then, and STEPS steps from there.

Each step adds 1 in all processes together, so that the sum at the end tells of every step that was lost or done twice.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

steps, pause = int(sys.argv[1]), float(sys.argv[2])
checkpoint = Path(os.environ["CHECKPOINT_DIR"], "state.pt")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
state = torch.load(checkpoint) if checkpoint.exists() else {"step": 0, "sum": torch.zeros(1)}
assert size == int(os.environ["NUM_LEARNERS"]), "the gang is as large as the agent says"
if len(sys.argv) > 3:
    steps = state["step"] + steps if int(os.environ["WEFT_ROUND"]) >= int(sys.argv[3]) else sys.maxsize
print(f"round {os.environ['WEFT_ROUND']}: rank {rank} of {size} starts at step {state['step']}", flush=True)
while state["step"] < steps:
    time.sleep(pause)
    share = torch.ones(1) / size
    dist.all_reduce(share)
    state = {"step": state["step"] + 1, "sum": state["sum"] + share}
    if rank == 0:
        part = checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(checkpoint)
        print(f"step {state['step']} with {size}", flush=True)
if rank == 0:
    Path(os.environ["RESULT_DIR"], "model.txt").write_text(f"{state['step']} steps, sum {state['sum'].item():.0f}\n")
dist.destroy_process_group()
