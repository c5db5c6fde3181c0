"""Horovod's RayExecutor, unchanged: two workers sum what each has."""

import os

import ray
from horovod.ray import RayExecutor


def train() -> tuple[str, float]:
    import horovod.torch as hvd
    import torch

    hvd.init()
    total = hvd.allreduce(torch.tensor(float(hvd.rank() + 1)), op=hvd.Sum).item()
    hvd.shutdown()
    return os.environ["LEARNER_ID"], total


ray.init()
executor = RayExecutor(RayExecutor.create_settings(timeout_s=100), num_workers=2, cpus_per_worker=1)
executor.start()
print("RayExecutor", sorted(executor.run(train)))
executor.shutdown()
