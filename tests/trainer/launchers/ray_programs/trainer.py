"""Ray Train's TorchTrainer, unchanged: two workers sum what each has."""

import os

import ray.train
import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train(config: dict[str, str]) -> None:
    number = torch.tensor(float(ray.train.get_context().get_world_rank() + 1))
    dist.all_reduce(number)
    print("TorchTrainer sum", number.item(), "on learner", os.environ["LEARNER_ID"])
    ray.train.report({"sum": number.item()})


storage = os.environ["JOB_STATE_DIR"] + "/train"
trainer = TorchTrainer(
    train,
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(name="sum", storage_path=storage),
)
trainer.fit()
