"""Gangs of three ranks that hang side by side, each in another way. Rank 1 is the culprit, if there is one.

usage: hangs.py FOLDER NAME…

Prints one JSON object for each process: its hang, rank and pid. A file NAME.RANK in FOLDER says that a rank is about to
hang. The ranks are forked after PyTorch is imported, as an import takes longer than everything else.
"""

import fcntl
import json
import os
import pdb
import queue
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(sys.argv[1])
WORLD = 3
torch.set_num_threads(1)


def train(rank):
    """Some steps that go well."""
    for _ in range(3):
        dist.all_reduce(torch.ones(4))


def say(name, rank):
    (FOLDER / f"{name}.{rank}").touch()


def forever():
    while True:
        time.sleep(1000)


def skipped(rank):
    if rank != 1:
        dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        forever()


def asleep(rank):
    if rank == 1:
        wait_for_a_quota()
    dist.all_reduce(torch.ones(4))


def wait_for_a_quota():
    time.sleep(1000)


def shapes(rank):
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(torch.ones(4_000_000 * (2 if rank == 1 else 1)), group=pair)
    forever()


def operations(rank):
    if rank == 1:
        dist.broadcast(torch.ones(4), 0)
    else:
        dist.all_reduce(torch.ones(4))
    forever()


def stopped(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(4))


class Locked(Dataset):
    def __init__(self, bad):
        self.bad = bad

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if self.bad and index == 1:
            read_a_record()
        return torch.ones(2)


def read_a_record():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def loader(rank, workers=0):
    for batch in DataLoader(Locked(rank == 1), num_workers=workers):
        dist.all_reduce(batch)


def loader_worker(rank):
    loader(rank, workers=1)


def debugger(rank):
    if rank == 1:
        pdb.Pdb(nosigint=True).set_trace()
    dist.barrier()


def lock(rank):
    mine = threading.Lock()
    if rank == 1:
        mine.acquire()
        save_the_best(mine)
    dist.broadcast(torch.ones(4), 0)


def save_the_best(mine):
    with mine:
        pass


def peer(rank):
    if rank == 1:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.accept()
    dist.all_gather([torch.ones(4) for _ in range(WORLD)], torch.ones(4))


def file_lock(rank):
    if rank == 1:
        with open(FOLDER / "lock", "w") as first, open(FOLDER / "lock", "w") as second:
            fcntl.flock(first, fcntl.LOCK_EX)
            fcntl.flock(second, fcntl.LOCK_EX)
    dist.all_reduce(torch.ones(4))


def thread(rank):
    if rank == 1:
        queue.Queue().get()
    dist.all_reduce(torch.ones(4))


def crossed(rank):
    pairs = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for pair in pairs if rank == 0 else reversed(pairs):
        if rank < 2:
            dist.all_reduce(torch.ones(4), group=pair)
    forever()


def subgroup(rank):
    everyone = dist.new_group([0, 1, 2])
    if rank == 1:
        forever()
    dist.all_reduce(torch.ones(4), group=everyone)


def uneven(rank):
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(2 if rank == 1 else 3):
        model(torch.ones(2)).sum().backward()
    dist.barrier()


def one_way(rank):
    if rank == 1:
        dist.recv(torch.ones(4), 0)
    dist.all_reduce(torch.ones(4))


def asynchronous(rank):
    if rank == 1:
        forever()
    work = dist.all_reduce(torch.ones(4), async_op=True)
    work.wait()


def start(rank):
    if rank == 1:
        forever()
    gather(rank, "start")


def gather(rank, name):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{FOLDER / name}.store",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(hours=1),
    )


def run(name, rank):
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    hang = globals()[name]
    if name != "start":
        gather(rank, name)
        train(rank)
    say(name, rank)
    hang(rank)
    forever()


for name in sys.argv[2:]:
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            run(name, rank)
        print(json.dumps({"hang": name, "rank": rank, "pid": pid}), flush=True)
for _ in sys.argv[2:]:
    for _ in range(WORLD):
        os.wait()
