"""Hugging Face datasets from a local file: each rank reads its part of the rows, and DDP averages the gradients."""

import os

import torch
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group()
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rows = load_dataset("csv", data_files="points.csv", split="train").with_format("torch")
rows = split_dataset_by_node(rows, rank=rank, world_size=world)
model = DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(3):
    for batch in torch.utils.data.DataLoader(rows, batch_size=4):
        inputs = torch.stack([batch["x"], batch["y"]], dim=1).float()
        loss = torch.nn.functional.mse_loss(model(inputs), batch["sum"].float().unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f} of {len(rows)} rows", flush=True)
total = sum(parameter.double().sum().item() for parameter in model.parameters())
print(f"world {world} rank {rank} parameters {total:.10f}", flush=True)
torch.distributed.destroy_process_group()
