"""A gang of Horovod with PyTorch that shows no step for a long time, and works: what is in the argument. The ranks that
wait are busy, too."""

import sys
import time

import horovod.torch as hvd
import torch

SECONDS = 40


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.ones(100, 100) @ torch.ones(100, 100)


def evaluation():
    """Rank 0 computes, and the others wait for it."""
    if hvd.rank() == 0:
        compute(SECONDS)
    hvd.allreduce(torch.ones(4), name="loss")


def epoch():
    """The steps of an epoch, without a line."""
    for step in range(SECONDS // 4):
        compute(4)
        hvd.allreduce(torch.ones(4), name=f"batch.{step}")


hvd.init()
for step in range(3):
    hvd.allreduce(torch.ones(4), name=f"warm.{step}")
    print(f"step {step}", flush=True)
globals()[sys.argv[1]]()
hvd.shutdown()
