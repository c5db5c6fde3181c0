"""A gang of PyTorch with Gloo that shows no step for a long time, and works: what is in the argument."""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

SECONDS = 40


def evaluation():
    """Rank 0 computes, and the others wait for it."""
    if dist.get_rank() == 0:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            torch.ones(100, 100) @ torch.ones(100, 100)
    dist.barrier()


def compilation():
    """Rank 1 waits for a compiler, which is a process of its own."""
    code = "x = [" + "1 + 2 * (3 - 4), " * 1000 + "]"
    compiler = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\n"
    compiler += "while time.monotonic() < end: compile(sys.argv[2], '', 'exec')"
    if dist.get_rank() == 1:
        subprocess.run([sys.executable, "-c", compiler, str(SECONDS), code], check=True)
    dist.barrier()


def saving():
    """Rank 0 writes to a slow disk."""
    if dist.get_rank() == 0:
        with open(os.path.join(os.environ["RESULT_DIR"], "weights"), "wb") as file:
            for _ in range(SECONDS):
                file.write(bytes(100_000))
                os.fsync(file.fileno())
                time.sleep(1)
    dist.barrier()


def reading():
    """Rank 1 reads slowly, and logs each batch."""
    for batch in range(SECONDS // 4):
        if dist.get_rank() == 1:
            time.sleep(4)
            print(f"batch {batch}", flush=True)
        dist.all_reduce(torch.ones(4))


dist.init_process_group("gloo")
for step in range(3):
    dist.all_reduce(torch.ones(4))
    print(f"step {step}", flush=True)
globals()[sys.argv[1]]()
dist.destroy_process_group()
