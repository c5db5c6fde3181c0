"""Each collective operation, and a step with DistributedDataParallel: by NCCL on GPUs, by Gloo elsewhere."""

import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

local = int(os.environ["LOCAL_RANK"])
cuda = torch.cuda.is_available()
device = torch.device("cuda", local) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()

total = torch.full((1000,), rank + 1.0, device=device)
dist.all_reduce(total)
assert (total == world * (world + 1) / 2).all()
first = torch.full((10,), float(rank), device=device)
dist.broadcast(first, src=0)
assert (first == 0).all()
gathered = [torch.zeros(3, device=device) for _ in range(world)]
dist.all_gather(gathered, torch.full((3,), float(rank), device=device))
assert [tensor[0].item() for tensor in gathered] == list(range(world))
dist.barrier()

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 8).to(device), device_ids=[local] if cuda else None)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = (model(torch.ones(16, 64, device=device)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
nccl = ".".join(map(str, torch.cuda.nccl.version())) if cuda else None
told = {"backend": dist.get_backend(), "world": world, "device": device.type, "nccl": nccl, "losses": losses}
print("collectives", json.dumps(told))
dist.destroy_process_group()
