"""Keras 3 on PyTorch, as Keras' guide to distributed training has it: a Keras model in DistributedDataParallel."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import torch
from torch.distributed import destroy_process_group, get_rank, get_world_size, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

init_process_group()
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
device = next(model.parameters()).device
parallel = DistributedDataParallel(model)
inputs = torch.randn(64, 8)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
loss_of = keras.losses.MeanSquaredError()
for epoch in range(3):
    for batch, targets in loader:
        loss = loss_of(targets.to(device), parallel(batch.to(device)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
total = sum(parameter.double().sum().item() for parameter in model.parameters())
print(f"world {get_world_size()} rank {get_rank()} parameters {total:.10f}", flush=True)
destroy_process_group()
