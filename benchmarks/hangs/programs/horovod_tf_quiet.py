"""A gang of Horovod with TensorFlow that shows no step for a long time, and works: what is in the argument."""

import sys

import horovod.tensorflow as hvd
import tensorflow as tf

SECONDS = 40.0


@tf.function
def average():
    return hvd.allreduce(tf.ones(4), name="loss")


@tf.function
def compute(x):
    end = tf.timestamp() + SECONDS
    while tf.timestamp() < end:
        x = tf.nn.l2_normalize(x @ x)
    return x


def step():
    """Rank 0 computes inside TensorFlow, and the others wait for it."""
    if hvd.rank() == 0:
        compute(tf.ones((100, 100)))
    average().numpy()


def last():
    """Rank 0 computes inside TensorFlow when the others have ended."""
    if hvd.rank() == 0:
        compute(tf.ones((100, 100)))


hvd.init()
for number in range(3):
    average()
    print(f"step {number}", flush=True)
globals()[sys.argv[1]]()
hvd.shutdown()
