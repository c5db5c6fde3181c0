"""A gang of Horovod with TensorFlow. After three good steps, it hangs in the way of the argument. torch_hangs.py
explains the comments."""

import os
import sys

import horovod.tensorflow as hvd
import tensorflow as tf

NAME = sys.argv[1]


@tf.function
def average(name):
    return hvd.allreduce(tf.ones(4), name=name)


def pipe(rank):
    """Rank 1 reads its next batch from a pipe into which nobody writes."""
    if rank == 1:
        reader, _ = os.pipe()
        os.read(reader, 1)  # blamed: pipe
    average("gradient")  # waits: pipe


def names(rank):
    """The ranks give their tensors different names, so each waits for the other."""
    average(f"gradient.{rank}")


hvd.init()
for step in range(3):
    average("warm")
    print(f"step {step}", flush=True)
globals()[NAME](hvd.rank())
