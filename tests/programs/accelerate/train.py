"""A plain loop with Hugging Face's Accelerate, as in its quick tour. The ranks see different data."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

set_seed(0)
accelerator = Accelerator()
points = torch.randn(64, 8)
data = torch.utils.data.TensorDataset(points, points.sum(dim=1, keepdim=True))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for _ in range(3):
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(f"loss {loss.item():.4f}")
total = sum(parameter.double().sum().item() for parameter in model.parameters())
print(f"world {accelerator.num_processes} rank {accelerator.process_index} parameters {total:.10f}", flush=True)
