"""Gangs of two ranks that hang in MultiWorkerMirroredStrategy, side by side. Rank 1 is the culprit.

usage: hangs_tensorflow.py FOLDER NAME…

As hangs.py: prints one JSON object for each process, and a file NAME.RANK in FOLDER says that a rank is about to hang.
TensorFlow can't be forked, so each rank is a program of its own.
"""

import json
import os
import pdb
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
WORLD = 2


def forever():
    while True:
        time.sleep(1000)


def skipped(step, rank):
    if rank == 1:
        forever()
    step()


def uneven(step, rank):
    """Rank 1 has fewer steps, and reads a pipe at the end."""
    for _ in range(2 if rank == 1 else 3):
        step()
    with open(FOLDER / "never") as pipe:
        pipe.read()


def debugger(step, rank):
    if rank == 1:
        pdb.set_trace()
    step()


def peer(step, rank):
    if rank == 1:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.accept()
    step()


LOCK = threading.Lock()


def records(rank):
    for number in range(4):
        if rank == 1 and number == 2:
            with LOCK:  # a lock that is never released
                pass
        yield number


def loader(step, rank):
    import tensorflow as tf

    LOCK.acquire()
    read = tf.data.Dataset.from_generator(lambda: records(rank), output_signature=tf.TensorSpec((), tf.int64))
    for _ in read:
        step()


def lock(step, rank):
    """Rank 1 saves in another thread, which never ends."""
    LOCK.acquire()
    if rank == 1:
        saving = threading.Thread(target=LOCK.acquire, daemon=True)
        saving.start()
        saving.join()
    step()


def run(name, rank):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        def replica():
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(4))

        return strategy.run(replica)

    for _ in range(3):
        step()
    (FOLDER / f"{name}.{rank}").touch()
    globals()[name](step, rank)
    forever()


def start(name, rank, workers):
    task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    child = subprocess.Popen(
        [sys.executable, __file__, FOLDER, name, str(rank)],
        env={**os.environ, "TF_CONFIG": json.dumps(task)},
        stdout=subprocess.DEVNULL,
    )
    print(json.dumps({"hang": name, "rank": rank, "pid": child.pid}), flush=True)
    return child


def free_ports():
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORLD)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


if sys.argv[-1].isdecimal():
    run(sys.argv[2], int(sys.argv[3]))
else:
    os.mkfifo(FOLDER / "never")
    ranks = []
    for name in sys.argv[2:]:
        workers = [f"127.0.0.1:{port}" for port in free_ports()]
        ranks += [start(name, rank, workers) for rank in range(WORLD)]
    for child in ranks:
        child.wait()
