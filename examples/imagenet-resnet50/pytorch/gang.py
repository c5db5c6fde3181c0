"""The other processes of the training: none, or those of Horovod or torch.distributed. Weft's launcher decides
which of them it is, by the environment that it starts this program with; the program is the same."""

import os
from collections.abc import Sequence

import torch
from torch import nn


class Alone:
    """One process, and what the other kinds change."""

    name = "none"
    rank, size, local_rank = 0, 1, 0
    weights = torch.channels_last
    """How the weights lie in memory; so convolutions are quickest."""

    def device(self) -> torch.device:
        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")

    def wrap(self, model: nn.Module, optimizer: torch.optim.Optimizer, fp16_allreduce: bool):
        """Both, with gradients that will be averaged over all processes; all start from the first one's weights."""
        return model, optimizer

    def step(self, optimizer, scaler: torch.amp.GradScaler) -> None:
        """Apply the gradients, averaged; a step with infinite ones is left out, by all processes alike."""
        scaler.step(optimizer)
        scaler.update()

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Each number summed over all processes."""
        return list(numbers)

    def from_first(self, value):
        """The first process's value, for all."""
        return value

    def average_statistics(self, model: nn.Module) -> None:
        """Each process has seen other images: one mean and variance of each normalization, for validation."""

    def close(self) -> None:
        pass


class Horovod(Alone):
    name = "horovod"
    weights = torch.contiguous_format  # Horovod takes no other

    def __init__(self) -> None:
        import horovod.torch as hvd  # only in Horovod's image

        hvd.init()
        self.hvd = hvd
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()

    def device(self) -> torch.device:
        # A Horovod without NCCL averages only what is on the CPU.
        if torch.cuda.is_available() and not self.hvd.nccl_built():
            print(f"rank {self.rank}: this Horovod was built without NCCL, so the GPU is left alone", flush=True)
            return torch.device("cpu")
        return super().device()

    def wrap(self, model, optimizer, fp16_allreduce):
        hvd = self.hvd
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        compression = hvd.Compression.fp16 if fp16_allreduce else hvd.Compression.none
        return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=compression)

    def step(self, optimizer, scaler) -> None:
        optimizer.synchronize()  # before the scaler looks for infinite ones, so that all find the same
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()

    def sum(self, numbers):
        return self.hvd.allreduce(torch.tensor(numbers, dtype=torch.float64), op=self.hvd.Sum).tolist()

    def from_first(self, value):
        # With a name: else it takes that of the type, and the first one's value may be of another than the others'.
        return self.hvd.broadcast_object(value, root_rank=0, name="value")

    def average_statistics(self, model) -> None:
        running = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        for buffer, average in zip(running, self.hvd.grouped_allreduce(running, op=self.hvd.Average), strict=True):
            buffer.copy_(average)

    def close(self) -> None:
        self.hvd.shutdown()


class TorchDistributed(Alone):
    name = "torch.distributed"

    def __init__(self) -> None:
        self.local_rank = int(os.environ["LOCAL_RANK"])
        if torch.cuda.is_available():
            torch.cuda.set_device(self.local_rank)
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        self.rank, self.size = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def wrap(self, model, optimizer, fp16_allreduce):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        devices = [self.local_rank] if torch.cuda.is_available() else None
        # Each process keeps its own statistics, as with Horovod: no broadcast in each step.
        wrapped = nn.parallel.DistributedDataParallel(
            model, device_ids=devices, forward_sync_buffers=False, gradient_as_bucket_view=True
        )
        if fp16_allreduce:
            wrapped.register_comm_hook(None, fp16_compress_hook)
        return wrapped, optimizer

    def sum(self, numbers):
        values = torch.tensor(numbers, dtype=torch.float64, device=self.device())
        torch.distributed.all_reduce(values)
        return values.tolist()

    def from_first(self, value):
        values = [value]
        torch.distributed.broadcast_object_list(values, src=0, device=self.device())
        return values[0]

    def average_statistics(self, model) -> None:
        for buffer in model.buffers():
            if buffer.is_floating_point():
                torch.distributed.all_reduce(buffer)
                buffer /= self.size

    def close(self) -> None:
        torch.distributed.destroy_process_group()


def join() -> Alone:
    """The gang that this process was started in."""
    if "HOROVOD_RANK" in os.environ:
        return Horovod()
    if "LOCAL_RANK" in os.environ:
        return TorchDistributed()
    return Alone()
