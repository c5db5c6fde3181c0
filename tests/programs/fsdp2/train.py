"""FSDP2 as torchtitan has it: each block sharded with fully_shard, over a mesh of the whole gang."""

import torch
from torch.distributed import destroy_process_group, get_rank, get_world_size
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.distributed.init_process_group()
mesh = init_device_mesh(device, (get_world_size(),), mesh_dim_names=("dp_shard",))
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2)])
model.to(device)
for block in model:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(get_rank())  # each rank has data of its own
for step in range(4):
    loss = model(torch.randn(4, 6, 16, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
local = sum(parameter.to_local().numel() for parameter in model.parameters())
whole = sum(parameter.numel() for parameter in model.parameters())
total = sum(parameter.full_tensor().double().sum().item() for parameter in model.parameters())
print(f"rank {get_rank()} holds {local} of {whole} parameters", flush=True)
print(f"world {get_world_size()} rank {get_rank()} parameters {total:.10f}", flush=True)
destroy_process_group()
