"""The other processes of the training: none, or those of Horovod. Weft's launcher decides which, by the
environment that it starts this program with; the program is the same."""

import os
from collections.abc import Sequence

import tensorflow as tf


class Alone:
    """One process, and what the other kind changes."""

    name = "none"
    rank, size, local_rank = 0, 1, 0

    def device(self) -> str:
        """``cuda`` or ``cpu``; of the learner's GPUs the process sees only its own from now on."""
        gpus = tf.config.list_physical_devices("GPU")
        if not gpus:
            return "cpu"
        tf.config.set_visible_devices(gpus[self.local_rank], "GPU")
        tf.config.experimental.set_memory_growth(gpus[self.local_rank], True)
        return "cuda"

    def average(self, gradients: Sequence[tf.Tensor], fp16: bool) -> list[tf.Tensor]:
        """Each gradient averaged over all processes."""
        return list(gradients)

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Each number summed over all processes."""
        return list(numbers)

    def start_alike(self, variables) -> None:
        """All take the first process's values."""

    def average_statistics(self, model) -> None:
        """Each process has seen other images: one mean and variance of each normalization, for validation."""

    def close(self) -> None:
        pass


class Horovod(Alone):
    name = "horovod"

    def __init__(self) -> None:
        import horovod.tensorflow as hvd  # only in Horovod's image

        hvd.init()
        self.hvd = hvd
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()

    def average(self, gradients, fp16):
        # One by one: each is sent while the others are still computed, and Horovod fuses those that come together.
        compression = self.hvd.Compression.fp16 if fp16 else self.hvd.Compression.none
        return [self.hvd.allreduce(gradient, op=self.hvd.Average, compression=compression) for gradient in gradients]

    def sum(self, numbers):
        return self.hvd.allreduce(tf.constant(numbers, tf.float64), op=self.hvd.Sum).numpy().tolist()

    def start_alike(self, variables) -> None:
        self.hvd.broadcast_variables([variable.value for variable in variables], root_rank=0)

    def average_statistics(self, model) -> None:
        running = [variable for variable in model.non_trainable_variables if "moving" in variable.path]
        values = self.hvd.grouped_allreduce([variable.value for variable in running], op=self.hvd.Average)
        for variable, value in zip(running, values, strict=True):
            variable.assign(value)

    def close(self) -> None:
        self.hvd.shutdown()


def join() -> Alone:
    """The gang that this process was started in."""
    return Horovod() if "HOROVOD_RANK" in os.environ else Alone()
