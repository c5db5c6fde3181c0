"""A gang of Horovod with PyTorch. After three good steps, it hangs in the way of the argument. torch_hangs.py explains
the comments."""

import io
import os
import pdb
import signal
import sys
import threading

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, Dataset

NAME = sys.argv[1]
LOCK = threading.Lock()
torch.set_num_threads(1)


def saving(rank):
    """Rank 1 waits for the thread that saves, which never ends."""
    LOCK.acquire()
    if rank == 1:
        thread = threading.Thread(target=LOCK.acquire, daemon=True)
        thread.start()
        thread.join()  # blamed: saving
    hvd.allreduce(torch.ones(4), name="gradient")  # waits: saving


def names(rank):
    """The ranks give their tensors different names, so each waits for the other."""
    hvd.allreduce(torch.ones(4), name=f"gradient.{rank}")


def stopped(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # blamed: stopped
    hvd.allreduce(torch.ones(4), name="gradient")  # waits: stopped


class Records(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if hvd.rank() == 1 and index == 2:
            with LOCK:  # blamed: loader
                pass
        return torch.ones(4)


def loader(rank):
    """The data loader waits for a lock."""
    LOCK.acquire()
    for step, batch in enumerate(DataLoader(Records())):
        hvd.allreduce(batch, name=f"batch.{step}")  # waits: loader


def debugger(rank):
    if rank == 0:
        terminal = io.TextIOWrapper(io.FileIO(os.openpty()[1]))
        pdb.Pdb(stdin=terminal, stdout=sys.stdout, nosigint=True).set_trace()
    hvd.allreduce(torch.ones(4), name="gradient")  # blamed and waits: debugger


def early(rank):
    """Rank 1 has fewer batches, and sends its weights already."""
    for step in range(2 if rank == 1 else 3):
        hvd.allreduce(torch.ones(4), name=f"batch.{step}")  # waits: early
    hvd.broadcast(torch.ones(4), root_rank=1, name="weights")  # blamed: early


hvd.init()
for step in range(3):
    hvd.allreduce(torch.ones(4), name=f"warm.{step}")
    print(f"step {step}", flush=True)
globals()[NAME](hvd.rank())
