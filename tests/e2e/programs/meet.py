"""Learners meet at the first one's address, by the variables of their launcher, without a framework."""

import json
import os
import socket
import time

if "TF_CONFIG" in os.environ:
    config = json.loads(os.environ["TF_CONFIG"])
    workers = config["cluster"]["worker"]
    rank, size = config["task"]["index"], len(workers)
    host, _, port = workers[0].rpartition(":")
else:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

if rank == 0:
    with socket.create_server((host, int(port))) as server:
        for _ in range(size - 1):
            server.accept()[0].close()
else:
    while True:
        try:
            socket.create_connection((host, int(port))).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
print(f"rank {rank} of {size}: all have met", flush=True)
