"""DeepSpeed's ZeRO, stage 2, as its getting-started guide has it, on CPUs."""

import deepspeed
import torch

# Else DeepSpeed compiles an operation for inference by several processes of one machine, for minutes.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
configuration = {
    "train_micro_batch_size_per_gpu": 16,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=configuration)
torch.manual_seed(torch.distributed.get_rank())  # each rank has data of its own
for step in range(5):
    loss = engine(torch.randn(16, 8)).square().mean()
    engine.backward(loss)
    engine.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
total = sum(parameter.double().sum().item() for parameter in engine.module.parameters())
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
print(f"world {world} rank {rank} parameters {total:.10f}", flush=True)
torch.distributed.destroy_process_group()
