"""Every process of a PyTorch gang adds its rank + 1; all print the sum."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
number = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(number)
print(f"learner {os.environ['LEARNER_ID']}: rank {dist.get_rank()} of {dist.get_world_size()}, sum {number.item():g}")
dist.destroy_process_group()
