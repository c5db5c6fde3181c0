"""Two ranks that train until they are killed: forked, so that PyTorch is imported once.

usage: trains.py FOLDER
"""

import os
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def train(rank):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=rank, world_size=2)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        step(model, optimizer)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    time.sleep(0.02)


if os.fork():
    train(0)
train(1)
