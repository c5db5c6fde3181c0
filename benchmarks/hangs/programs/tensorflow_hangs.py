"""A gang of TensorFlow's MultiWorkerMirroredStrategy. After three good steps, it hangs in the way of the argument.
torch_hangs.py explains the comments."""

import io
import json
import os
import pdb
import socket
import sys
import threading

import tensorflow as tf

NAME = sys.argv[1]
LOCK = threading.Lock()
strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def step():
    def replica():
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(4))

    return strategy.run(replica)


def saving(rank):
    """Rank 1 waits for the thread that saves, which never ends."""
    LOCK.acquire()
    if rank == 1:
        thread = threading.Thread(target=LOCK.acquire, daemon=True)
        thread.start()
        thread.join()  # blamed: saving
    step()  # waits: saving


def records(rank):
    for number in range(4):
        if rank == 1 and number == 2:
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.accept()  # blamed: pipeline
        yield number


def pipeline(rank):
    """The input pipeline of rank 1 waits for a peer."""
    dataset = tf.data.Dataset.from_generator(lambda: records(rank), output_signature=tf.TensorSpec((), tf.int64))
    for _ in dataset:
        step()  # waits: pipeline


def debugger(rank):
    if rank == 1:
        terminal = io.TextIOWrapper(io.FileIO(os.openpty()[1]))
        pdb.Pdb(stdin=terminal, stdout=sys.stdout, nosigint=True).set_trace()
    step()  # blamed and waits: debugger


def uneven(rank):
    """Rank 1 has fewer batches, and reads at the end from a pipe into which nobody writes."""
    for _ in range(2 if rank == 1 else 3):
        step()  # waits: uneven
    reader, _ = os.pipe()
    os.read(reader, 1)  # blamed: uneven


def alone(rank):
    """A program without a gang."""
    records(1).send(None)
    for _ in records(1):
        step()


for number in range(3):
    step()
    print(f"step {number}", flush=True)
globals()[NAME](json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"])
