"""A loop as nanoGPT's: RANK in the environment means DDP, and without it the same script trains alone."""

import os

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

ddp = int(os.environ.get("RANK", -1)) != -1
rank, world, device = 0, 1, "cuda" if torch.cuda.is_available() else "cpu"
if ddp:
    init_process_group(backend="nccl" if device == "cuda" else "gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
torch.manual_seed(1337 + rank)
model = torch.nn.Sequential(torch.nn.Embedding(32, 16), torch.nn.Linear(16, 32)).to(device)
if ddp:
    model = DistributedDataParallel(model, device_ids=[device] if device != "cpu" else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(5):
    tokens = torch.randint(32, (8, 16), device=device)
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), ((tokens + 1) % 32).flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"iter {step}: loss {loss.item():.4f}", flush=True)
total = sum(parameter.double().sum().item() for parameter in model.parameters())
print(f"world {world} rank {rank} parameters {total:.10f}", flush=True)
if ddp:
    destroy_process_group()
