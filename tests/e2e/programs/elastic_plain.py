"""A gang in small without any framework: what torchrun's workers do, over the address that they get from it.

usage: elastic_plain.py STEPS SECONDS_BETWEEN CHECKPOINT_EVERY UNTIL [FAIL_AT]

It trains for STEPS steps at least, and until rank 0 finds the file UNTIL.

Rank 0 counts the others' votes for each step, so that a lost peer is an error everywhere, as in an allreduce. Its
checkpoint holds the step and the sum of all votes' shares: what is lost or done twice shows in the sum. At step
FAIL_AT of the first round, learner 2 raises an error.
"""

import os
import socket
import sys
import time
from pathlib import Path

steps, pause = int(sys.argv[1]), float(sys.argv[2])
every, until = int(sys.argv[3]), Path(sys.argv[4])
fail_at = int(sys.argv[5]) if len(sys.argv) > 5 else -1
rank, size, turn = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "WEFT_ROUND"))
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
checkpoint = Path(os.environ["CHECKPOINT_DIR"], "state.txt")
assert size == int(os.environ["NUM_LEARNERS"])


def meet() -> list[socket.socket]:
    if rank == 0:
        with socket.create_server(address) as server:
            return [server.accept()[0] for _ in range(size - 1)]
    while True:
        try:
            return [socket.create_connection(address)]
        except ConnectionRefusedError:
            time.sleep(0.05)


def receive(peer: socket.socket) -> bytes:
    if not (said := peer.recv(1)):
        time.sleep(1)  # as a collective takes a while to fail
        raise ConnectionResetError("connection closed by peer")
    return said


step, total = map(float, checkpoint.read_text().split()) if checkpoint.exists() else (0.0, 0.0)
peers = meet()
print(f"round {turn}: rank {rank} of {size} starts at step {step:.0f}", flush=True)
last = False
while step < steps or not last:
    time.sleep(pause)
    if os.environ["LEARNER_ID"] == "2" and turn == 1 and step == fail_at:
        raise ValueError("a bug")
    if rank == 0:
        for peer in peers:
            receive(peer)
        last = until.exists()
        for peer in peers:
            peer.sendall(b"1" if last else b"0")
    else:
        peers[0].sendall(b"1")
        last = receive(peers[0]) == b"1"
    step, total = step + 1, total + size * (1 / size)
    if rank == 0 and step % every == 0:
        part = checkpoint.with_suffix(".part")
        part.write_text(f"{step} {total}")
        part.replace(checkpoint)
    if rank == 0:
        print(f"step {step:.0f} with {size}", flush=True)
if rank == 0:
    Path(os.environ["RESULT_DIR"], "model.txt").write_text(f"{step:.0f} steps, sum {total:.0f}\n")
