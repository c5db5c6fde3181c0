"""Gangs of two ranks that hang in Horovod's collectives, side by side. Rank 1 is the culprit, if there is one.

usage: hangs_horovod.py FOLDER NAME…

As hangs.py: prints one JSON object for each process, and a file NAME.RANK in FOLDER says that a rank is about to hang.
"""

import json
import os
import pdb
import signal
import sys
import threading
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(sys.argv[1])
WORLD = 2
torch.set_num_threads(1)


def forever():
    while True:
        time.sleep(1000)


def average(name):
    return hvd.allreduce(torch.ones(4), name=name)


def skipped(rank):
    if rank == 1:
        forever()
    average("gradient")


def names(rank):
    """Each waits for a tensor that the other never gives."""
    average(f"gradient.{rank}")


def operations(rank):
    if rank == 1:
        hvd.broadcast(torch.ones(4), root_rank=0, name="weights")
    average("gradient")


def stopped(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    average("gradient")


class Records(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if hvd.rank() == 1 and index == 2:
            with LOCK:  # a lock that is never released
                pass
        return torch.ones(4)


LOCK = threading.Lock()


def loader(rank):
    LOCK.acquire()
    for step, _ in enumerate(DataLoader(Records())):
        average(f"step.{step}")


def debugger(rank):
    if rank == 1:
        pdb.set_trace()
    average("gradient")


def early(rank):
    """Rank 1 has fewer steps, and waits at the end for its pipe."""
    for step in range(3 if rank == 1 else 4):
        average(f"step.{step}")
    with open(FOLDER / "never") as pipe:
        pipe.read()


def run(name, rank, port):
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    os.environ |= {
        "HOROVOD_HOSTNAME": f"learner-{rank + 1}",
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(WORLD),
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": str(rank),
        "HOROVOD_CROSS_SIZE": str(WORLD),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "3600",
    }
    hvd.init()
    for step in range(3):
        average(f"warm.{step}")
    (FOLDER / f"{name}.{rank}").touch()
    globals()[name](rank)
    forever()


def serve(server):
    hosts = parse_hosts(",".join(f"learner-{rank + 1}:1" for rank in range(WORLD)))
    server.init(get_host_assignments(hosts, WORLD, WORLD))
    server.serve_forever()


os.mkfifo(FOLDER / "never")
servers = []
for name in sys.argv[2:]:
    servers.append(RendezvousHTTPServer(("127.0.0.1", 0), RendezvousHandler, 0))
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            run(name, rank, servers[-1].server_address[1])
        print(json.dumps({"hang": name, "rank": rank, "pid": pid}), flush=True)
for server in servers:  # after the forks, as a child has no threads
    threading.Thread(target=serve, args=(server,), daemon=True).start()
for _ in range(WORLD * len(servers)):
    os.wait()
