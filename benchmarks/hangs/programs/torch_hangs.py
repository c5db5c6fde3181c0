"""A gang of PyTorch with Gloo. After three good steps, it hangs in the way of the argument.

The comment `blamed: NAME` marks the line at which the culprit of a hang is, and `waits: NAME` the line at which the
others wait for it.
"""

import datetime
import fcntl
import io
import os
import pdb
import queue
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

NAME = sys.argv[1]
torch.set_num_threads(1)


def skipped(rank):
    """Rank 1 leaves out the step of a batch that has a bad value. So it is through with its epoch one step early."""
    for batch in range(4):
        if rank == 1 and batch == 2:
            continue
        dist.all_reduce(torch.ones(4))  # waits: skipped
    dist.barrier()  # blamed: skipped


def shapes(rank):
    """The last batch of rank 1 is larger."""
    dist.all_reduce(torch.ones(8_000_000 if rank == 1 else 4_000_000))
    dist.barrier()


def stopped(rank):
    """Somebody has pressed Ctrl-Z."""
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)  # blamed: stopped
    dist.broadcast(torch.ones(4), 0)  # waits: stopped


class Records(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if dist.get_rank() == 1 and index == 2:
            with LOCK:  # blamed: loader
                pass
        return torch.ones(4)


LOCK = threading.Lock()


def loader(rank):
    """The worker of a data loader inherits a lock that its parent holds."""
    LOCK.acquire()
    for batch in DataLoader(Records(), num_workers=1):
        dist.all_reduce(batch)  # waits: loader


def debugger(rank):
    """A breakpoint that was left in the code of one rank."""
    if rank == 1:
        terminal = io.TextIOWrapper(io.FileIO(os.openpty()[1]))
        pdb.Pdb(stdin=terminal, stdout=sys.stdout, nosigint=True).set_trace()
    dist.barrier()  # blamed and waits: debugger


def full_disk(rank):
    """Rank 0 saves, and tries again and again, as the disk is full."""
    while rank == 0:
        try:
            with open("/dev/full", "w") as file:
                file.write("weights")
            break
        except OSError:
            time.sleep(1000)  # blamed: full_disk
    dist.barrier()  # waits: full_disk


def crossed(rank):
    """Two groups, which two ranks use in a different order."""
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups if rank == 0 else reversed(groups):
        dist.all_reduce(torch.ones(4), group=group)


def file_lock(rank):
    """Rank 1 waits for a lock on a cache that is held by the program itself."""
    path = os.path.join(os.environ["RESULT_DIR"], "cache.lock")
    if rank == 1:
        with open(path, "w") as first, open(path, "w") as second:
            fcntl.flock(first, fcntl.LOCK_EX)
            fcntl.flock(second, fcntl.LOCK_EX)  # blamed: file_lock
    dist.all_reduce(torch.ones(4))  # waits: file_lock


def prefetcher(rank):
    """The thread that fills a queue has died in rank 2."""
    batches = queue.Queue()
    threading.Thread(target=lambda: [batches.put(torch.ones(4)) for _ in range(0 if rank == 2 else 1)]).start()
    batch = batches.get()  # blamed: prefetcher
    dist.all_reduce(batch)  # waits: prefetcher


def uneven(rank):
    """Rank 1 has fewer batches than the others, and is through with its epoch."""
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(2 if rank == 1 else 3):
        model(torch.ones(2)).sum().backward()  # waits: uneven
    dist.barrier()  # blamed: uneven


if NAME == "no_work" and os.environ["RANK"] == "1":
    print("this rank has no work: it ends before the gang meets", flush=True)
    sys.exit()
dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))  # waits: no_work
for step in range(3):
    dist.all_reduce(torch.ones(4))
    print(f"step {step}", flush=True)
globals()[NAME](dist.get_rank())
